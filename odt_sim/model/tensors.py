"""Named weights and arrays, which strategies send, keep and receive."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from odt_sim.errors import StrategyError
from odt_sim.model.weights import Array, Weights, read_only_array

Tensors = Mapping[str, Weights | Array]


@dataclass(frozen=True)
class ServerState:
    """The coordinator's state between two rounds.

    Attributes:
        broadcast: Tensors sent to all devices of a cohort, unless `Strategy.message` returns others.
        private: Tensors that stay on the coordinator, where `Strategy.message` may read them.
    """

    broadcast: Tensors
    private: Tensors = field(default_factory=dict)

    @property
    def weights(self) -> Weights:
        """The entry `weights` of the broadcast."""
        return weights_of(self.broadcast)


def weights_of(tensors: Tensors, name: str = "weights") -> Weights:
    """Return a named entry as `Weights`.

    Raises:
        StrategyError: The entry is missing or an array.
    """
    found = tensors.get(name)
    if not isinstance(found, Weights):
        raise StrategyError(f"expected {name!r} to be Weights, found {type(found).__name__}; set it in init and local")
    return found


def array_of(tensor: Weights | Array) -> Array:
    """Return a tensor's values as an array."""
    return tensor.vector if isinstance(tensor, Weights) else tensor


def size_of(tensors: Tensors) -> int:
    """Return the size of tensors in bytes."""
    return sum(array_of(tensor).nbytes for tensor in tensors.values())


def read_only(tensors: Tensors) -> Tensors:
    """Return read-only views; tensors that are already read-only are returned themselves."""
    return {name: _view(tensor) for name, tensor in tensors.items()}


def _view(tensor: Weights | Array) -> Weights | Array:
    """Return a read-only view of a tensor; not a nested function, whose annotations would take 15 µs at each call."""
    if not isinstance(tensor, Weights):
        return read_only_array(tensor)
    vector = read_only_array(tensor.vector)
    return tensor if vector is tensor.vector else Weights(tensor.layout, vector)
