"""A traced function, and its accesses to variables."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import tensorflow as tf

from odt_sim.export.lowering.ops.control_flow import READS, depended_on, written


@dataclass(frozen=True)
class Trace:
    """A traced function.

    Attributes:
        concrete: The function as traced by TensorFlow, with named outputs.
        layers: The names of the model's layers, to name the origin of an op in errors.
        states: The states of the function's random ops, which the graph does not list.
    """

    concrete: tf.types.experimental.ConcreteFunction
    layers: Collection[str]
    states: tuple[tf.Variable, ...] = ()

    @cached_property
    def variables(self) -> dict[str, int]:
        """The `id` of each variable's handle, by the name of the handle's placeholder."""
        captures = self.concrete.graph.captures
        return {placeholder.op.name: id(outer) for outer, placeholder in captures if outer.dtype == tf.resource}

    @cached_property
    def arguments(self) -> dict[str, tf.TensorSpec]:
        """The spec of each argument, with the argument's name, by the name of its placeholder."""
        specs = arguments_of(self.concrete)
        tensors = self.concrete.inputs[: len(specs)]  # followed by captures
        return {tensor.op.name: spec for tensor, spec in zip(tensors, specs, strict=True)}

    def live_operations(self, weights: Collection[int]) -> list[tf.Operation]:
        """Return, in order, the ops that the outputs, or the variables with handle ids in `weights`, depend on.

        A write to any other variable is live only if a live op reads the variable: SGD's step count, for example, is not.
        """
        operations = self.concrete.graph.get_operations()
        writes = defaultdict[str, list[tf.Operation]](list)
        for op in operations:
            for handle in written(op):
                writes[handle.op.name].append(op)
        ends = [t.op for t in self.concrete.structured_outputs.values()]
        ends += [op for variable, own in writes.items() if self.variables.get(variable) in weights for op in own]
        live = depended_on(ends, writes)
        return [op for op in operations if op.name in live]

    def where(self, op: tf.Operation) -> str:
        """Return the layer that an op comes from, or its name outside layers."""
        # Keras opens each layer's scope twice; TensorFlow numbers the second.
        names = [name for part in reversed(op.name.split("/")) for name in (part.rpartition("_")[0], part)]
        layer = next((name for name in names if name in self.layers), None)
        return (
            f"layer {layer!r}"
            if layer
            else f"{op.name!r} (outside layers: in a function of the model, the loss or the optimizer)"
        )


@dataclass(frozen=True)
class Accesses:
    """The accesses of a function to variables.

    Attributes:
        read: The handle ids of the variables that the function reads, in order.
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
        """Whether the function computes outputs from inputs and weights, without changing variables."""
        return self.takes_inputs and bool(self.read) and not self.changed

    @property
    def trains(self) -> bool:
        """Whether the function has inputs and changes variables that it reads."""
        return self.takes_inputs and bool(self.changed.intersection(self.read))


def arguments_of(concrete: tf.types.experimental.ConcreteFunction) -> list[tf.TensorSpec]:
    """Return the specs of a function's arguments, with the arguments' names, in the order of its inputs."""
    positional, named = concrete.structured_input_signature
    specs = [spec for spec in tf.nest.flatten(positional) if isinstance(spec, tf.TensorSpec)]
    return specs + [tf.TensorSpec.from_spec(named[key], key) for key in sorted(named)]
