"""Exact snapshots of Python environments, or an honest no.

An environment here is a stack of layers: its wrappers and the env inside. A snapshot is a pickle of the layers'
attribute dictionaries. The layers themselves are stored by their place in the stack, so that references back to the env
(bound methods, `world.env`) lead to the live objects again, and the env's own pickling, which often only remembers the
constructor's arguments, is never used.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any

from gymnasium.utils import EzPickle

# Attributes that describe an env and never change while it runs; specs may hold callables that cannot be pickled.
_CONSTANT_ATTRIBUTES = frozenset({"env", "spec", "_cached_spec", "_saved_kwargs"})

# What NumPy and the standard library write into a pickle of plain data.
_DATA_GLOBALS = frozenset(
    {
        *(("builtins", name) for name in ("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset")),
        *(("builtins", name) for name in ("int", "list", "range", "set", "slice", "str", "tuple")),
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        ("random", "Random"),
    }
)
_NUMPY_GLOBALS = frozenset(
    {
        "MT19937",
        "PCG64",
        "PCG64DXSM",
        "Philox",
        "SFC64",
        "SeedSequence",
        "__bit_generator_ctor",
        "__generator_ctor",
        "__pyx_unpickle_SeedSequence",
        "__randomstate_ctor",
        "_frombuffer",
        "_reconstruct",
        "dtype",
        "ndarray",
        "scalar",
    }
)


class _Plain:
    """Has nothing but a dictionary: the size of its instances is the yardstick for hidden state."""


def layers_of(env: Any) -> list[Any]:
    """List an env's wrappers, outermost first, and the env inside last."""
    layers = [env]
    inner = _attributes(env).get("env")
    while hasattr(inner, "step") and not any(inner is layer for layer in layers):
        layers.append(inner)
        inner = _attributes(inner).get("env")
    return layers


def take_snapshot(layers: Sequence[Any]) -> bytes:
    """Pickle the attributes of an env's layers.

    Raises:
        pickle.PicklingError: If an attribute cannot be stored, or only by a method that may lose its state.
    """
    file = io.BytesIO()
    state = [{k: v for k, v in vars(layer).items() if not _is_constant(layer, k, v)} for layer in layers]
    try:
        _StatePickler(file, layers).dump(state)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise pickle.PicklingError(str(error)) from error
    return file.getvalue()


def restore_snapshot(layers: Sequence[Any], snapshot: bytes) -> None:
    """Give an env's layers the attributes of a snapshot of the same stack.

    Only plain data and classes of the env's own packages are built, so that a snapshot from elsewhere cannot run code.

    Raises:
        pickle.UnpicklingError: If the snapshot holds anything else, or belongs to another stack.
    """
    states = _StateUnpickler(io.BytesIO(snapshot), layers).load()
    if not isinstance(states, list) or len(states) != len(layers):
        raise pickle.UnpicklingError(f"a snapshot must hold one state for each of {len(layers)} layers")
    for layer, state in zip(layers, states, strict=True):
        constant = {k: v for k, v in vars(layer).items() if _is_constant(layer, k, v)}
        vars(layer).clear()
        vars(layer).update(state, **constant)


def is_snapshot_exact(
    layers: Sequence[Any], has_started: bool, rollout: Callable[[Any], object], start: Callable[[Any], object]
) -> bool:
    """Try whether snapshots hold all of an env's state, on copies and without touching the env.

    A first copy is stepped from a snapshot, a second copy from the same snapshot after it. They only agree if nothing
    they depend on (a simulator behind a handle, a global random stream) lies outside the snapshot.

    Args:
        layers: The env's stack.
        has_started: Whether the env has been reset, so that its copies can be stepped at once.
        rollout: Steps a copy a few times and returns something comparable.
        start: Resets a copy.
    """
    if not all(_has_plain_state(layer) for layer in layers):
        return False
    try:
        first = _copy_of(layers, take_snapshot(layers))
        if not has_started:
            start(first[0])
        snapshot = take_snapshot(first)
        second = _copy_of(layers, snapshot)
        return rollout(first[0]) == rollout(second[0])
    except Exception:
        # Whatever goes wrong on a copy says the same: this env has no exact snapshot.
        return False


def _copy_of(layers: Sequence[Any], snapshot: bytes) -> list[Any]:
    copies = [object.__new__(type(layer)) for layer in layers]
    for original, outer, inner in zip(layers, copies, [*copies[1:], None], strict=True):
        vars(outer).update({k: v for k, v in vars(original).items() if _is_constant(original, k, v)})
        if inner is not None:
            vars(outer)["env"] = inner
    restore_snapshot(copies, snapshot)
    return copies


def _has_plain_state(layer: Any) -> bool:
    """Tell whether all of an object's state is in its dictionary, and letting go of a copy has no effect."""
    kind = type(layer)
    return kind.__basicsize__ == _Plain.__basicsize__ and not hasattr(kind, "__del__")


class _StatePickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, layers: Sequence[Any]) -> None:
        super().__init__(file, protocol=5)
        self._places = {id(layer): place for place, layer in enumerate(layers)}

    def persistent_id(self, obj: Any) -> int | tuple[int, str] | None:
        if type(obj) is MethodType:
            place = self._places.get(id(obj.__self__))
            return None if place is None else (place, obj.__func__.__name__)
        return self._places.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, EzPickle):
            raise pickle.PicklingError(f"{type(obj).__name__} only pickles the arguments of its constructor")
        if not isinstance(obj, type) and hasattr(type(obj), "__del__"):
            raise pickle.PicklingError(f"{type(obj).__name__} owns something that a copy would release")
        return NotImplemented


class _StateUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, layers: Sequence[Any]) -> None:
        super().__init__(file)
        self._layers = layers
        self._packages = {"gymnasium"} | {_package(type(layer).__module__) for layer in layers}

    def persistent_load(self, place: Any) -> Any:
        if isinstance(place, int):
            return self._layers[place]
        layer, name = self._layers[place[0]], place[1]
        method = getattr(layer, name) if isinstance(getattr(type(layer), name, None), FunctionType) else None
        if method is None:
            raise pickle.UnpicklingError(f"a snapshot may name methods of the env's layers; got {name!r}")
        return method

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _DATA_GLOBALS:
            return super().find_class(module, name)
        if _package(module) == "numpy" and (name in _NUMPY_GLOBALS or module == "numpy.dtypes"):
            return super().find_class(module, name)
        found = super().find_class(module, name) if _package(module) in self._packages else None
        if isinstance(found, type) and _package(found.__module__) in self._packages:
            return found
        raise pickle.UnpicklingError(
            f"a snapshot may hold plain data and classes of {', '.join(sorted(self._packages))}; got {module}.{name}"
        )


def _is_constant(layer: Any, name: str, value: Any) -> bool:
    # Gymnasium's own wrappers never change the functions they were given.
    return name in _CONSTANT_ATTRIBUTES or (
        callable(value) and type(layer).__module__.startswith("gymnasium.wrappers.")
    )


def _attributes(layer: Any) -> dict[str, Any]:
    return getattr(layer, "__dict__", {})


def _package(module: str) -> str:
    return module.partition(".")[0]
