"""The names of several inputs and outputs in signatures.

| tensor | one | several |
|---|---|---|
| input of `train`, `infer` and `embed` | `x` | `x_<input>` |
| target of `train` | `y` | `y_<output>` |
| output of `infer` | `logits`, or the only output | `logits_<output>` |
| mask of an output of `infer` | `mask` | `mask_<output>` |
| losses of the examples, of signature `loss` | `losses` | `losses`, and `losses_<output>` |
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")

ROW_INPUTS = ("x", "y")


def parts(values: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Return values by name without prefix: `{"": value}` for `x`, `{"user": ..., "item": ...}` for `x_user`, `x_item`.

    Args:
        values: Values by their names in a signature.
        prefix: `x`, `y`, `logits`, `mask` or `losses`.
    """
    if prefix in values:
        return {"": values[prefix]}
    start = f"{prefix}_"
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


def full(prefix: str, part: str) -> str:
    """Return the name in a signature: `x` for an empty part, else such as `x_user`."""
    return f"{prefix}_{part}" if part else prefix


def is_one_of(name: str, prefixes: Iterable[str]) -> bool:
    """Return whether a name has one of the prefixes, alone or with a part."""
    return any(name == prefix or name.startswith(f"{prefix}_") for prefix in prefixes)
