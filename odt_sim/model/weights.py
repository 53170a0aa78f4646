"""The weights of a model as one flat float32 vector with named views."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import shown
from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import Parameter

Array = NDArray[Any]
Vector = NDArray[np.float32]


def read_only_array(array: Array) -> Array:
    """Return a read-only view of an array; an array that is already read-only is returned itself."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Layout:
    """The parameters in a flat vector.

    Attributes:
        parameters: The parameters in the order of the vector.
    """

    parameters: tuple[Parameter, ...]

    def __reduce__(self) -> tuple[Callable[[str], "Layout"], tuple[str]]:
        """Pickle as one text, which is cached: messages between processes repeat the same few layouts."""
        return Layout.of, (self.text,)

    @staticmethod
    @lru_cache(64)
    def of(text: str) -> "Layout":
        """Return the layout of a text, which is the same object each time."""
        return Layout(tuple(Parameter(name, tuple(shape), *rest) for name, shape, *rest in json.loads(text)))

    @cached_property
    def text(self) -> str:
        """The parameters as one text."""
        return json.dumps([astuple(parameter) for parameter in self.parameters], default=int)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        return tuple(p.name for p in self.parameters)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The slice of the vector of each parameter, by name."""
        ends = np.cumsum([prod(p.shape) for p in self.parameters], dtype=np.int64).tolist()
        return {p.name: slice(end - prod(p.shape), end) for p, end in zip(self.parameters, ends, strict=True)}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, by name."""
        return {p.name: p.shape for p in self.parameters}

    @cached_property
    def size(self) -> int:
        """The number of floats in the vector."""
        return sum(prod(p.shape) for p in self.parameters)

    def select(self, keep: Callable[[Parameter], bool]) -> "Layout":
        """Return the layout of the parameters for which `keep` is true, in the same order."""
        return Layout(tuple(p for p in self.parameters if keep(p)))


@dataclass(frozen=True, eq=False)
class Weights:
    """A flat float32 vector with named views, and its arithmetic: `a + b`, `a - b`, `2 * a`, `a / 2`, `-a`, `sum`.

    Attributes:
        layout: The parameters in the vector.
        vector: `[layout.size]` float32.
    """

    layout: Layout
    vector: Vector

    def __post_init__(self) -> None:
        """Check the vector against the layout."""
        if not (isinstance(self.vector, np.ndarray) and isinstance(self.layout, Layout)):
            raise ModelError(
                f"weights: expected a layout, such as model.layout, and a float32 vector, found {shown(self.layout)} and "
                f"{shown(self.vector)}; build them from arrays with Weights.from_tensors"
            )
        if self.vector.shape != (self.layout.size,) or self.vector.dtype != np.float32:
            raise ModelError(
                f"weights: expected a float32 vector of [{self.layout.size}] for {len(self.layout.parameters)} parameters, "
                f"found {self.vector.dtype} {list(self.vector.shape)}; {_advice(self.vector)}"
            )

    def __repr__(self) -> str:
        """Return one line, without the values."""
        return f"Weights({self.layout.size:,} floats of {len(self.layout.parameters)} parameters)"

    @classmethod
    def zeros(cls, layout: Layout) -> "Weights":
        """Return weights that are all zero."""
        return cls(layout, np.zeros(layout.size, np.float32))

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Sequence[Any]) -> "Weights":
        """Return weights with a copy of one tensor for each parameter of `layout`, in order.

        Raises:
            ModelError: The number of tensors, a shape or a dtype does not fit.
        """
        arrays = [np.asarray(tensor) for tensor in tensors]
        if len(arrays) != len(layout.parameters):
            raise ModelError(f"weights: expected {len(layout.parameters)} tensors, found {len(arrays)}")
        for parameter, array in zip(layout.parameters, arrays, strict=True):
            if array.shape != parameter.shape or array.dtype != np.float32:
                raise ModelError(
                    f"weights: {parameter.name}: expected float32 {list(parameter.shape)}, "
                    f"found {array.dtype} {list(array.shape)}; {_advice(array)}"
                )
        flat = [array.reshape(-1) for array in arrays]
        return cls(layout, np.concatenate(flat) if flat else np.zeros(0, np.float32))

    def tensors(self) -> list[NDArray[np.float32]]:
        """Return shaped views of the vector in the order `a0..aN`."""
        return [self[parameter.name] for parameter in self.layout.parameters]

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return the view of one parameter."""
        place = self.layout.slices.get(name)
        if place is None:
            raise ModelError(f"weights: no parameter {name!r}; expected one of {', '.join(self.layout.names)}")
        return self.vector[place].reshape(self.layout.shapes[name])

    def select(self, layout: Layout) -> "Weights":
        """Return a copy of the parameters of `layout`; if these are all, read-only weights are returned themselves.

        Raises:
            ModelError: A parameter is missing, or has another shape.
        """
        if layout == self.layout:
            return self._unshared()
        parts = [self.vector[place] for place in self._places(layout)]
        return Weights(layout, np.concatenate(parts) if parts else np.zeros(0, np.float32))

    def replace(self, other: "Weights") -> "Weights":
        """Return a copy with the values of `other` for its parameters; if these are all, `other` itself if read-only.

        Raises:
            ModelError: A parameter of `other` is missing here, or has another shape.
        """
        if other.layout == self.layout:
            return other._unshared()
        vector = self.vector.copy()
        start = 0
        for place in self._places(other.layout):
            size = place.stop - place.start
            vector[place] = other.vector[start : start + size]
            start += size
        return Weights(self.layout, vector)

    def _unshared(self) -> "Weights":
        """Return a copy, unless the vector is read-only."""
        return Weights(self.layout, self.vector.copy()) if self.vector.flags.writeable else self

    def isfinite(self) -> bool:
        """Return whether no value is NaN or infinite."""
        return is_finite(self.vector)

    def _places(self, layout: Layout) -> list[slice]:
        for name, shape in layout.shapes.items():
            own = self.layout.shapes.get(name)
            if own is None:
                raise ModelError(f"weights: no parameter {name!r}; expected one of {', '.join(self.layout.names)}")
            if own != shape:
                raise ModelError(
                    f"weights: {name}: expected {list(own)}, found {list(shape)}; use the weights of the same model"
                )
        return [self.layout.slices[name] for name in layout.names]

    def _same(self, other: "Weights") -> Vector:
        if other.layout != self.layout:
            raise ModelError(
                f"weights: cannot combine {len(self.layout.names)} parameters of {self.layout.size} floats with "
                f"{len(other.layout.names)} of {other.layout.size}; select the same parameters of the same model first"
            )
        return other.vector

    def __add__(self, other: "Weights") -> "Weights":
        """Add weights of the same layout."""
        if not isinstance(other, Weights):
            return NotImplemented
        return Weights(self.layout, self.vector + self._same(other))

    def __radd__(self, other: Literal[0]) -> "Weights":
        """Add to 0, the start value of `sum`."""
        return self._unshared() if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: "Weights") -> "Weights":
        """Subtract weights of the same layout."""
        if not isinstance(other, Weights):
            return NotImplemented
        return Weights(self.layout, self.vector - self._same(other))

    def __mul__(self, factor: float) -> "Weights":
        """Multiply every value by a number."""
        if not hasattr(factor, "__float__"):
            return NotImplemented
        return Weights(self.layout, self.vector * np.float32(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Weights":
        """Divide every value by a number."""
        if not hasattr(divisor, "__float__"):
            return NotImplemented
        return Weights(self.layout, self.vector / np.float32(divisor))

    def __neg__(self) -> "Weights":
        """Change every sign."""
        return Weights(self.layout, -self.vector)


def is_finite(array: Array) -> bool:
    """Return whether no value is NaN or infinite.

    A finite sum of squares proves it in one fast pass; else every value is checked.
    """
    if array.dtype.kind == "f" and np.isfinite(np.vdot(array, array)):
        return True
    return bool(np.isfinite(array).all())


def surely_below(arrays: Sequence[Array], limit: float) -> bool:
    """Return whether one fast pass proves that arrays are finite and their joint L2 norm is below a limit.

    The norm's last bits depend on the number of threads, so a decision needs a limit far from the norm.
    """
    if any(array.dtype.kind != "f" for array in arrays):
        return False
    return math.sqrt(sum(float(np.vdot(array, array)) for array in arrays)) < limit


def exceeds(arrays: Sequence[Array], limit: float) -> bool:
    """Return whether the joint L2 norm of finite arrays exceeds a limit, computed in float64 and in a fixed order."""
    with np.errstate(over="ignore"):
        exact = sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays)
    return math.sqrt(exact) > limit


def _advice(array: Array) -> str:
    """Return what to do about an array whose shape or dtype does not fit."""
    return "use the weights of the same model" if array.dtype == np.float32 else "convert it by .astype(np.float32)"
