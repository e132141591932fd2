"""The examples of the README run, in order, in one namespace."""

import re
import textwrap
from pathlib import Path


def test_every_example_of_the_readme_runs():
    text = Path(__file__).parent.parent.joinpath("README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    namespace = {"__name__": "__main__"}

    assert len(blocks) >= 6
    for block in blocks:
        exec(compile(textwrap.dedent(block), "README.md", "exec"), namespace)
