"""A PyTorch module as a Keras model."""

import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export.torch.checks import (
    check_gradients,
    check_module,
    check_outputs,
    own_gradients,
    untraceable,
)
from odt_sim.export.torch.decomposition import decomposed, inlined
from odt_sim.export.torch.modes import Mode
from odt_sim.export.torch.nodes import check_buffers, row_orders
from odt_sim.export.torch.program import Program, Variables, array_of, dtype_of

STATISTICS = ("running_mean", "running_var")


class Weights(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """A layer with the parameters of one submodule under their own names; it computes nothing."""

    def __init__(self, path: str, tensors: Mapping[str, Any], *, normalizes: bool, trainable: bool) -> None:
        super().__init__(trainable=trainable, name=path or "module")
        self.module_path, self.normalizes = path, normalizes
        with ExitStack() as scopes:
            for part in filter(None, path.split(".")):
                scopes.enter_context(keras.name_scope(part))
            self.own = {name: _variable(name, tensor, _join(path, name)) for name, tensor in tensors.items()}
        for variable in self.own.values():
            self._track_variable(variable)
        self.built = True


class Module(keras.Model):  # type: ignore[misc]
    """A model that runs the graphs of a PyTorch module: one for training and one for inference."""

    def __init__(
        self, layers: Sequence[Weights], programs: Mapping[bool, Program], name: str, generator: Any = None
    ) -> None:
        super().__init__(name=name)
        self.weights_of_layers, self.programs = list(layers), programs
        self.generator = generator or keras.random.SeedGenerator(0)
        self.sample_weight: tf.Tensor | None = None
        self.problem: ExportError | None = None
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Return the module's outputs."""
        mode = Mode(training, self.generator, self.sample_weight)
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        try:
            return self.programs[training].run([tf.convert_to_tensor(x) for x in given], mode)
        except ExportError as error:
            self.problem = error  # Keras would wrap it in pages of text
            raise


def split_module(model: keras.Model, head: Sequence[Weights]) -> tuple[keras.Model, keras.Model]:
    """Return the body of a PyTorch module, from its inputs to the embedding, and its head, with the same weights.

    Args:
        model: A model from `keras_model`.
        head: The layers of the head.

    Raises:
        ExportError: The model's graphs cannot be cut before the head.
    """
    (own,) = (layer for layer in model.layers if isinstance(layer, Module))
    rest = [layer for layer in own.weights_of_layers if all(layer is not each for each in head)]
    halves = {training: program.halves(head) for training, program in own.programs.items()}
    body = Module(rest, {t: first for t, (first, _) in halves.items()}, f"{model.name}_body", own.generator)
    last = Module(head, {t: second for t, (_, second) in halves.items()}, f"{model.name}_head", own.generator)
    before = keras.Model(model.inputs, body(model.inputs), name=body.name)
    embedding = keras.Input(batch_shape=tuple(before.output.shape), dtype=before.output.dtype, name="embedding")
    return before, keras.Model(embedding, last(embedding), name=last.name)


def is_module(source: Any) -> bool:
    """Return whether a source is a `torch.nn.Module`, without importing PyTorch."""
    return any(
        kind.__name__ == "Module" and kind.__module__ == "torch.nn.modules.module" for kind in type(source).__mro__
    )


def inputs_and_targets(example: Any) -> tuple[Any, Any]:
    """Return the inputs and the targets of an example; only pairs `((x, ...), y)` or `({name: x}, y)` have targets."""
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[0], tuple | Mapping):
        return example
    return example, None


def keras_model(module: Any, example: Any, batch_size: int | None) -> keras.Model:
    """Return a PyTorch module as a Keras model with the same weights, for batches of one size.

    Args:
        module: A `torch.nn.Module` that `torch.export` can trace in both modes.
        example: An example of its input, `[rows, ...]`, a tuple of several inputs, or a mapping by the names of
            `forward`'s arguments, as tensors or arrays.
        batch_size: The number of rows of each batch.

    Raises:
        ExportError: The example or the batch size is missing, PyTorch cannot trace the module, or an op has no
            TensorFlow function.
    """
    if example is None or batch_size is None:
        missing = (
            "example, one of its inputs with the rows first" if example is None else "batch_size, a number of rows"
        )
        raise ExportError(f"torch: module {type(module).__name__} does not define its input shapes; pass {missing}")
    check_module(module)
    given = bound_inputs(module, example, batch_size)
    layers = _layers(module)
    _warn_of_frozen(module, layers)
    owners = {_join(layer.module_path, name): layer for layer in layers for name in layer.own}
    first_names = _first_names(module)
    variables = Variables(
        own={name: owners[first].own[first.rpartition(".")[2]] for name, first in first_names.items()},
        layers={name: owners[first] for name, first in first_names.items()},
        constants=_constants(module),
    )
    graphs = {training: _exported(module, given, training=training) for training in (True, False)}
    check_buffers(list(graphs.values()))
    check_outputs(graphs, type(module).__name__)
    orders = row_orders(module, given, graphs[True], batch_size)
    programs = {training: Program(exported, variables, orders) for training, exported in graphs.items()}
    arguments = inputs_by_name(given)
    if any(x.is_complex() for x in arguments.values()):
        raise _complex("takes")
    name = type(module).__name__.lower().lstrip("_") or "module"  # a valid TensorFlow scope
    inputs = [
        keras.Input(batch_shape=tuple(x.shape), dtype=dtype_of(x.dtype).name, name=own) for own, x in arguments.items()
    ]
    own = Module(layers, programs, f"{name}_module" if name in arguments else name)  # Keras' names must be unique
    try:
        own(inputs, training=True)  # first here, where errors are not yet wrapped
        model = keras.Model(inputs, own(inputs), name=name)
    except Exception as error:
        raise own.problem or error from None
    if any(tensor.dtype == "complex64" for tensor in model.outputs):
        raise _complex("returns")
    return model


def _complex(verb: str) -> ExportError:
    return ExportError(
        f"torch: forward {verb} complex numbers, but the inputs and outputs of a file are real; use torch.view_as_real and "
        "torch.view_as_complex there"
    )


def bound_inputs(module: Any, example: Any, count: int) -> inspect.BoundArguments:
    """Return an example's inputs, with the rows of a batch, as the arguments of a module's `forward`."""
    named = isinstance(example, Mapping)
    several = example.values() if named else example if isinstance(example, list | tuple) else [example]
    rows, signature = [_rows(x, count) for x in several], inspect.signature(module.forward)
    try:
        return signature.bind(**dict(zip(example, rows, strict=True))) if named else signature.bind(*rows)
    except TypeError as error:
        raise ExportError(
            f"example: {type(module).__name__} does not accept the {len(rows)} given inputs ({error}); pass only its "
            "inputs, without targets"
        ) from error


def inputs_by_name(given: inspect.BoundArguments) -> dict[str, Any]:
    """Return arguments by their names in `forward`; arguments of `*args` are numbered."""
    inputs = dict[str, Any]()
    for name, value in given.arguments.items():
        if isinstance(value, tuple):
            inputs |= {f"{name}{i}": x for i, x in enumerate(value)}
        else:
            inputs |= value if isinstance(value, dict) else {name: value}
    return inputs


def _warn_of_frozen(module: Any, layers: Sequence[Weights]) -> None:
    """Warn about BatchNorm with frozen parameters whose running statistics PyTorch would still update."""
    frozen = [
        layer.module_path for layer in layers if not layer.trainable and not layer.own.keys().isdisjoint(STATISTICS)
    ]
    surprising = [path for path in frozen if module.training and module.get_submodule(path).training]
    if surprising:
        warnings.warn(
            f"torch: {', '.join(surprising)}: frozen by requires_grad=False, so the file keeps the running "
            "statistics, which PyTorch would update; call eval() on them to silence this warning",
            ExportWarning,
            stacklevel=2,
        )


def _exported(module: Any, given: inspect.BoundArguments, *, training: bool) -> Any:
    """Return the graph of a module in one mode; the module itself is not changed."""
    import torch

    before = [(part, part.training) for part in module.modules()]
    logging.disable(logging.CRITICAL)  # PyTorch logs pages about code that it cannot trace
    try:
        if training != module.training:  # otherwise, parts in the other mode are so on purpose
            module.train(training)
        with (
            warnings.catch_warnings(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            masks_given(),
            no_caches(module),
        ):
            warnings.simplefilter("ignore")
            with own_gradients(module) as names:
                exported = torch.export.export(module, given.args, given.kwargs, strict=False)
            if training and names:
                check_gradients(module, given, exported.module(), names)
            return decomposed(inlined(exported))
    except ExportError:
        raise
    except Exception as error:  # PyTorch raises many types
        raise untraceable(module, error) from error
    finally:
        logging.disable(logging.NOTSET)
        for part, mode in before:
            part.training = mode


@contextmanager
def masks_given() -> Iterator[None]:
    """Let `nn.Transformer` use a mask unchanged: tracing cannot detect from its values whether it is causal."""
    from torch.nn.modules import transformer

    own = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = own


@contextmanager
def no_caches(module: Any) -> Iterator[None]:
    """Turn off the key-value caches of language models of `transformers`, which `torch.export` cannot return."""
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    caching = [config for config in configs.values() if getattr(config, "use_cache", False)]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


def _rows(x: Any, count: int) -> Any:
    """Return `count` rows, by repeating an example's rows."""
    import torch

    x = torch.as_tensor(x)
    return x[torch.arange(count) % len(x)]


def _layers(module: Any) -> list[Weights]:
    """Return layers with the parameters and statistics of each submodule, in order."""
    layers, seen = [], set[int]()
    for path, part in module.named_modules():
        tensors = {**dict(part.named_parameters(recurse=False)), **dict(part.named_buffers(recurse=False))}
        floats = {n: t for n, t in tensors.items() if _is_weight(n, t) and id(t) not in seen}
        seen |= set(map(id, floats.values()))
        learned = {n: t for n, t in floats.items() if t.requires_grad}
        statistics = {n: t for n, t in floats.items() if n in STATISTICS}
        frozen = {n: t for n, t in floats.items() if n not in learned and n not in statistics}
        follows = not frozen or bool(learned)
        parts = ((True, learned | (statistics if follows else {})), (False, frozen | ({} if follows else statistics)))
        normalizes = "Norm" in type(part).__name__
        layers += [Weights(path, own, normalizes=normalizes, trainable=trainable) for trainable, own in parts if own]
    return layers


def _first_names(module: Any) -> dict[str, str]:
    """Return the first name of each weight by all of its names; tied weights have several."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    for name, tensor in named:
        first.setdefault(id(tensor), name)
    return {name: first[id(tensor)] for name, tensor in named if _is_weight(name.rpartition(".")[2], tensor)}


def _is_weight(name: str, tensor: Any) -> bool:
    """Return whether a tensor is a parameter or a running statistic; other buffers are constants."""
    return tensor is not None and (tensor.requires_grad or name in STATISTICS or type(tensor).__name__ == "Parameter")


def _variable(name: str, tensor: Any, path: str) -> keras.Variable:
    if str(tensor.dtype) != "torch.float32":
        raise ExportError(f"torch: expected float32 weights, found {tensor.dtype} in {path!r}; call module.float()")
    if tensor.is_meta:
        raise ExportError(f"torch: {path!r} has no values, since it is on the device 'meta'; build the module on a CPU")
    values = tensor.detach().cpu().numpy()
    return keras.Variable(values, trainable=tensor.requires_grad, dtype="float32", name=name)


def _constants(module: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the buffers that are no weights, by name, in TensorFlow's types."""
    buffers = module.named_buffers(remove_duplicate=False)
    return {name: array_of(b) for name, b in buffers if not _is_weight(name.rpartition(".")[2], b)}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
