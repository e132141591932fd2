import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_every_block_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    namespace = {"__name__": "readme"}

    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)

    assert len(blocks) >= 5
