"""What a traced signature reads and changes."""

from collections.abc import Collection
from dataclasses import dataclass

import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.calls import READS, written


@dataclass(frozen=True)
class Accesses:
    """The accesses of a signature to variables.

    Attributes:
        read: The handle ids of the variables that the signature reads, in order.
        changed: The handle ids of the variables that it changes.
        takes_inputs: Whether it has inputs.
    """

    read: tuple[int, ...]
    changed: frozenset[int]
    takes_inputs: bool

    @classmethod
    def of(cls, trace: Trace, random: Collection[int]) -> "Accesses":
        """Return the accesses of a traced signature; `random` contains the handle ids of random ops' states."""
        operations = trace.concrete.graph.get_operations()
        read = [t.op.name for op in operations if op.type in READS for t in op.inputs if t.dtype == tf.resource]
        changed = {t.op.name for op in operations for t in written(op)}
        return cls(
            tuple(dict.fromkeys(trace.variables[name] for name in read)),
            frozenset(trace.variables[name] for name in changed).difference(random),
            bool(trace.arguments),
        )

    @property
    def infers(self) -> bool:
        """Whether the signature computes outputs from inputs and weights, without changing variables."""
        return self.takes_inputs and bool(self.read) and not self.changed

    @property
    def trains(self) -> bool:
        """Whether the signature has inputs and changes variables that it reads."""
        return self.takes_inputs and bool(self.changed.intersection(self.read))
