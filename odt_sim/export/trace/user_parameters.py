"""Describe the weights that a user's `parameters` function returns: name, role and group."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.parameters import NORMALIZING, unique
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.control_flow import written
from odt_sim.model.contract.manifest import Parameter

GENERATOR = "seed_generator_state"


@dataclass(frozen=True)
class UserParameter:
    """A tensor that `parameters` returns.

    Attributes:
        variable: The tensor's variable; None if it depends on no variable or several.
        parameter: The tensor's description.
    """

    variable: tf.Variable | None
    parameter: Parameter


def parameters_of(traces: Mapping[str, Trace], variables: Mapping[int, tf.Variable]) -> list[UserParameter]:
    """Describe the tensors of `parameters` in the order `a0..aN`.

    A variable that no training step changes is frozen; a changed one is trainable, or a statistic if `trainable=False`.
    The head is the layer of the last trainable weight outside normalizations; variable names determine the layers.
    """
    outputs = traces["parameters"].concrete.structured_outputs
    names = names_of_weights(outputs)
    shown = [variable_of(traces["parameters"], outputs[name], variables) for name in names]
    paths = unique([name if v is None else v.name.partition(":")[0] for name, v in zip(names, shown, strict=True)])
    trained = {key for name, trace in traces.items() if name.startswith("train") for key in _changed(trace)}
    roles = ["trainable" if v is None else _role(v, trained) for v in shown]
    groups = _groups(paths, roles)
    return [
        UserParameter(v, Parameter(path, tuple(outputs[name].shape), outputs[name].dtype.name, role, group))
        for v, name, path, role, group in zip(shown, names, paths, roles, groups, strict=True)
    ]


def names_of_weights(outputs: Collection[str]) -> list[str]:
    """Return the output names `a0`, `a1`, ... in numerical order.

    Raises:
        ExportError: There are no outputs, or outputs with other names.
    """
    names = [f"a{i}" for i in range(len(outputs))]
    others = sorted(set(outputs) - set(names))
    if others or not names:
        found = repr(others[0]) if others else "nothing"
        raise ExportError(f"`parameters`: expected to return the weights as a0, a1, ..., found {found}; name them so")
    return names


def is_generator(variable: tf.Variable) -> bool:
    """Return whether a variable is the state of a Keras 3 random layer: a seed and a count of draws."""
    return GENERATOR in variable.name and variable.shape == [2] and variable.dtype == tf.int64


def variable_of(trace: Trace, output: tf.Tensor, variables: Mapping[int, tf.Variable]) -> tf.Variable | None:
    """Return the only variable that an output depends on; None if it depends on no variable or several."""
    variable_ids, pending = set(), [output.op]
    while pending:
        op = pending.pop()
        variable_ids |= {trace.variables[op.name]} if op.name in trace.variables else set()
        pending += [t.op for t in op.inputs]
    return variables[variable_ids.pop()] if len(variable_ids) == 1 else None


def _changed(trace: Trace) -> Iterator[int]:
    for op in trace.concrete.graph.get_operations():
        yield from (trace.variables[t.op.name] for t in written(op))


def _role(variable: tf.Variable, trained: set[int]) -> str:
    if id(variable.handle) not in trained:
        return "frozen"
    return "trainable" if variable.trainable else "statistic"


def _groups(paths: list[str], roles: list[str]) -> list[str]:
    layers = [path.rpartition("/")[0] for path in paths]
    norms = {
        layer for layer, path in zip(layers, paths, strict=True) if layer and path.rpartition("/")[2] in NORMALIZING
    }
    others = [layer for layer, role in zip(layers, roles, strict=True) if layer not in norms and role == "trainable"]
    return ["norm" if layer in norms else "head" if layer in others[-1:] else "body" for layer in layers]
