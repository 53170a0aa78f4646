"""Describe the weights of a Keras model for the manifest: name, role and group."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import combinations

import keras

from odt_sim.errors import ExportError
from odt_sim.model.contract.manifest import Parameter

NORMALIZATIONS = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
)
NORMALIZING = {"gamma", "beta", "moving_mean", "moving_variance"}  # identify normalizations in a SavedModel


def leaf_layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield a model's layers in order, with nested models flattened; a model with own weights counts as one layer."""
    return (layer for _, layer in _leaves(model))


def _leaves(model: keras.Model, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], keras.layers.Layer]]:
    """Yield each of the `leaf_layers` after its path: the names of the nested models around it, and its own."""
    for layer in model.layers:
        path = (*above, layer.name)
        if isinstance(layer, keras.Model) and not layer._trainable_variables and not layer._non_trainable_variables:
            yield from _leaves(layer, path)
        else:
            yield path, layer


def all_layers(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """Yield a layer and all layers inside it, in nested models and wrappers."""
    yield layer
    for inner in layer._layers:
        yield from all_layers(inner)


def random_states_of(model: keras.Model) -> list[keras.Variable]:
    """Return the state of each random generator in a model: a seed and a count of draws, `[2]` int64."""
    metrics = [v for layer in all_layers(model) for metric in layer._metrics for v in metric.variables]
    others = {id(v) for v in [*model.weights, *metrics]}
    return [v for v in model.variables if id(v) not in others]


def group_of_layers(model: keras.Model, head: str | Sequence[str] | None) -> dict[int, str]:
    """Return the group of each layer with weights, one of `manifest.GROUPS`, by the layer's `id`.

    Args:
        model: The model.
        head: The names of the layers of the head: of a layer, of a nested model for all of its layers, a path such as
            `decoder/conv`, or a pattern such as `decoder_*`; None for the last layer with weights before each output.

    Raises:
        ExportError: A name selects no layer, or is that of several layers.
    """
    layers = [layer for layer in leaf_layers(model) if layer.weights]
    heads = {id(layer) for layer in (_last_layers(model, layers) if head is None else _selected(model, head))}
    groups = {id(layer): "norm" if _normalizes(layer) else "body" for layer in layers}
    return groups | {id(layer): "head" for layer in layers if id(layer) in heads}


def weights_of(model: keras.Model) -> list[keras.Variable]:
    """Return the weights that are parameters: all except integers, such as the counter of a Normalization."""
    return [v for v in model.weights if not keras.backend.is_int_dtype(v.dtype)]


def parameter_names(model: keras.Model) -> list[str]:
    """Return the names of `weights_of` a model: the paths of the variables, made unique."""
    return unique([v.path for v in weights_of(model)])


def parameters_of(model: keras.Model, groups: Mapping[int, str]) -> tuple[Parameter, ...]:
    """Describe a model's parameters in the order of `weights_of`."""
    layers = [layer for layer in leaf_layers(model) if layer.weights]
    group = {id(v): groups[id(layer)] for layer in layers for v in layer.weights}
    names = parameter_names(model)
    trainable = {id(v) for v in model.trainable_weights}
    frozen = {id(v) for layer in all_layers(model) if not layer.trainable for v in layer.weights}
    frozen |= {
        id(v) for layer in all_layers(model) for v in layer._trainable_variables if not v.trainable
    }  # LoRA freezes individual variables
    frozen |= {id(v) for layer in all_layers(model) if getattr(layer, "quantization_mode", None) for v in layer.weights}
    return tuple(
        Parameter(
            name=name,
            shape=tuple(v.shape),
            dtype=_float32(v),
            role="trainable" if id(v) in trainable else "frozen" if id(v) in frozen else "statistic",
            group=group.get(id(v), "body"),  # weights that a model class adds itself
        )
        for name, v in zip(names, weights_of(model), strict=True)
    )


def _normalizes(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, NORMALIZATIONS) or getattr(layer, "normalizes", False)


def _last_layers(model: keras.Model, layers: Sequence[keras.layers.Layer]) -> list[keras.layers.Layer]:
    """Return, for each output, the last of the layers with weights that is not a normalization."""
    if len(getattr(model, "outputs", None) or ()) > 1:
        return [layer for output in model.outputs for layer in _last_before(output)]
    return [layer for layer in layers if not _normalizes(layer)][-1:]


def _last_before(output: keras.KerasTensor) -> list[keras.layers.Layer]:
    pending = [output]
    while pending:
        operation = pending.pop(0)._keras_history.operation
        if isinstance(operation, keras.Model):
            return [layer for layer in leaf_layers(operation) if layer.weights and not _normalizes(layer)][-1:]
        if isinstance(operation, keras.layers.Layer) and operation.weights and not _normalizes(operation):
            return [operation]
        pending += [] if isinstance(operation, keras.layers.InputLayer) else keras.tree.flatten(operation.input)
    return []


def _selected(model: keras.Model, names: str | Sequence[str]) -> list[keras.layers.Layer]:
    """Return the layers that names select, see `group_of_layers`."""
    leaves = [(path, layer) for path, layer in _leaves(model) if layer.weights]
    known = dict.fromkeys(name for path, _ in leaves for name in path)
    selected = []
    for name in [names] if isinstance(names, str) else names:
        if not (found := [(path, layer) for path, layer in leaves if _selects(name, path)]):
            raise ExportError(f"head: no layer {name!r} with weights; expected one of {', '.join(known)}")
        namesakes = {id(layer): "/".join(path) for path, layer in found if path[-1] == name}
        if len(namesakes) > 1:
            paths = ", ".join(namesakes.values())
            raise ExportError(f"head: {len(namesakes)} layers have the name {name!r}; expected one of {paths}")
        selected += [layer for _, layer in found]
    return selected


def _selects(pattern: str, path: Sequence[str]) -> bool:
    """Return whether a pattern is that of a layer, of a nested model around it, or of a part of the layer's path."""
    parts = ("/".join(path[start:end]) for start, end in combinations(range(len(path) + 1), 2))
    return any(fnmatchcase(part, pattern) for part in parts)


def unique(names: Sequence[str]) -> list[str]:
    """Return unique names, with `_1`, `_2`, ... appended to duplicates."""
    taken: set[str] = set()
    result = []
    for name in names:
        unique, count = name, 0
        while unique in taken:
            count += 1
            unique = f"{name}_{count}"
        taken.add(unique)
        result.append(unique)
    return result


def _float32(variable: keras.Variable) -> str:
    if variable.dtype != "float32":
        raise ExportError(
            f"{variable.path}: expected float32 weights, found {variable.dtype}; build the model with dtype float32"
        )
    return "float32"
