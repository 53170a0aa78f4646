"""Export the Flex flavour: traced functions as TensorFlow runs them, with TensorFlow's checkpoints.

Nothing is lowered: ops without a built-in kernel become Flex ops. The signatures `save` and `restore` and the single-file
checkpoint format follow "On-Device Training with TensorFlow Lite", for apps written after that guide.
"""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from odt_sim.export.flex_graph import copied_graph
from odt_sim.export.lowering import Trace
from odt_sim.export.parameters import parameter_names, unique, weights_of
from odt_sim.export.signatures import Program, Signatures, Variable, copies, handle, numbered, reader, writer
from odt_sim.export.tracing import Function, named

CHECKPOINT_PATH = tf.TensorSpec([], tf.string, "checkpoint_path")


def checkpoint_of(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, generators: Sequence[Variable]
) -> dict[str, Variable]:
    """Return the variables of a training checkpoint by name.

    These are the weights under their parameter names, the optimizer's slots as `optimizer/...`, and the states of random
    layers as `random_state/0`, ... Keras' names of the last two depend on which objects the process created before.
    """
    slots = [v for v in optimizer.variables if v is not optimizer.learning_rate]
    names = parameter_names(model)
    names += [f"optimizer/{v.path.partition('/')[2]}" for v in slots]
    names += [f"random_state/{i}" for i in range(len(generators))]
    return dict(zip(unique(names), [*weights_of(model), *slots, *generators], strict=True))


def flex_signatures(program: Program, checkpoint: Mapping[str, Variable]) -> Signatures:
    """Return copies of all signatures that use new variables with the current values.

    `parameters` and `set_parameters` (arrays `a0..aN`), `save` and `restore` (a checkpoint), and, if there are offsets,
    `set_gradient_offset` are added.
    """
    weights, states, offsets = copies(program.weights, "a"), copies(program.states, "s"), copies(program.offsets, "b")
    inputs = {handle(v): tf.Variable(v.numpy(), name=name) for name, v in program.inputs.items()}
    variables = {**weights, **states, **offsets, **inputs}
    names = {handle(v): name for name, v in program.inputs.items()}
    functions = {key: _copied(trace, variables, names) for key, trace in program.traces.items()}
    arrays = program.weight_names
    functions["parameters"], functions["set_parameters"] = reader(weights, arrays), writer(weights, arrays)
    if offsets:
        functions["set_gradient_offset"] = writer(offsets, numbered("b", offsets))
    saved = {name: variables[handle(v)] for name, v in checkpoint.items()}
    functions["save"], functions["restore"] = _save(saved), _restore(saved)
    module = tf.Module()
    module.variables_of_model = list(variables.values())
    return Signatures(module, functions, random_states=())


def _copied(trace: Trace, variables: Mapping[int, tf.Variable], inputs: Mapping[int, str]) -> Function:
    """Return the function of a trace; variables that are inputs are assigned before they are read."""
    read = set(trace.variables.values())
    given = {name: variables[key] for key, name in inputs.items() if key in read}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        for name, variable in given.items():
            variable.assign(values[name])
        return copied_graph(trace, values, variables)

    return named(function, [*trace.arguments.values(), *(tf.TensorSpec(v.shape, v.dtype, k) for k, v in given.items())])


def _save(checkpoint: Mapping[str, tf.Variable]) -> Function:
    """Return a function that writes variables into one file."""

    def save(checkpoint_path: tf.Tensor) -> dict[str, tf.Tensor]:
        data = [v.read_value() for v in checkpoint.values()]
        tf.raw_ops.Save(filename=checkpoint_path, tensor_names=list(checkpoint), data=data)
        return {"checkpoint_path": checkpoint_path}

    return named(save, [CHECKPOINT_PATH])


def _restore(checkpoint: Mapping[str, tf.Variable]) -> Function:
    """Return a function that restores what `save` wrote.

    All tensors are read and their shapes checked before the first assignment: a wrong file changes nothing.
    """
    variables: Sequence[tf.Variable] = list(checkpoint.values())

    def restore(checkpoint_path: tf.Tensor) -> dict[str, tf.Tensor]:
        tensors = tf.raw_ops.RestoreV2(
            prefix=checkpoint_path,
            tensor_names=list(checkpoint),
            shape_and_slices=[""] * len(variables),
            dtypes=[v.dtype for v in variables],
        )
        tensors = [tf.ensure_shape(tensor, v.shape) for tensor, v in zip(tensors, variables, strict=True)]
        with tf.control_dependencies(tensors):
            for tensor, variable in zip(tensors, variables, strict=True):
                variable.assign(tensor)
        return dict(zip(checkpoint, tensors, strict=True))

    return named(restore, [CHECKPOINT_PATH])
