from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

class ActionGate:
    def __init__(self, target: NDArray[Any], limits: Sequence[int]) -> None: ...
    def write(self, actions: Any, first_row: int, last_row: int) -> bool: ...

def any_set(flags: NDArray[Any], first_row: int, last_row: int) -> bool: ...
