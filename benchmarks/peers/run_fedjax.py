"""The workloads on FedJAX, with models in Haiku.

BACKEND is jit, which trains one client at a time, or pmap, which trains a client on each JAX device at the same time
(for several CPU devices, set XLA_FLAGS=--xla_force_host_platform_device_count=N). FEATURES=1 computes a frozen body's
features only once per device.
"""

import os
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from peers.workloads import Array, Problem

FEATURES = os.environ.get("FEATURES") == "1"
STEPS = [0]
Parameters = dict[str, dict[str, Any]]


class Examples(fedjax.ClientDataset):
    """A client's examples, which count the batches drawn from them."""

    def shuffle_repeat_batch(self, hparams: Any = None, **changed: Any) -> Iterator[Any]:
        for batch in super().shuffle_repeat_batch(hparams, **changed):
            STEPS[0] += 1
            yield batch


def softmax(x: Any) -> Any:
    return hk.Linear(10)(x)


def cnn(x: Any) -> Any:
    for filters in (16, 32):
        x = jax.nn.relu(hk.Conv2D(filters, 3, padding="VALID")(x))
        x = hk.MaxPool(2, 2, "VALID")(x)
    hidden = jax.nn.relu(hk.Linear(64)(hk.Flatten()(x)))  # named before the last layer
    return hk.Linear(10)(hidden)


def lstm(x: Any) -> Any:
    core = hk.LSTM(64)
    embedded = hk.Embed(80, 8)(x).swapaxes(0, 1)
    outputs, _ = hk.dynamic_unroll(core, embedded, core.initial_state(x.shape[0]))
    return hk.Linear(80)(outputs).swapaxes(0, 1)


def body_of(arrays: list[Array]) -> Any:
    """Return the frozen MobileNet as a function of images, with Keras's padding."""
    strides = [2, *(stride for s in (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1) for stride in (s, 1))]
    folded = []
    for kernel, gamma, beta, mean, variance in zip(*(arrays[i::5] for i in range(5)), strict=True):
        depthwise = bool(folded) and kernel.shape[-1] == 1
        kernel = kernel.transpose(0, 1, 3, 2) if depthwise else kernel
        scale = gamma / np.sqrt(variance + 1e-3)
        folded.append((kernel * scale, beta - mean * scale, kernel.shape[-1] if depthwise else 1))

    def body(x: Any) -> Any:
        x = 2 * x - 1
        for (kernel, shift, groups), stride in zip(folded, strides, strict=True):
            padding = [(0, 1)] * 2 if stride == 2 else "SAME"
            layout = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(
                x, kernel, (stride, stride), padding, dimension_numbers=layout, feature_group_count=groups
            )
            x = jnp.clip(x + shift, 0, 6)
        return x.mean((1, 2))

    return body


def transfer(body: Any) -> Any:
    return lambda x: hk.Linear(10)(jax.lax.stop_gradient(body(x)))


def losses(batch: Any, logits: Any) -> Any:
    """Return the loss of each example, the mean over its positions."""
    each = fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)
    return each.mean(tuple(range(1, each.ndim)))


def place(parameters: Parameters, values: list[Array]) -> Parameters:
    """Return Haiku's parameters set to values in Keras's layout."""
    if "lstm/linear" in parameters:
        embedding, kernel, recurrent, bias, dense, dense_bias = values
        bias = bias.copy()
        bias[64:128] -= 1  # Haiku adds 1 to the forget gate
        gates = {"w": _swapped(np.concatenate([kernel, recurrent])), "b": _swapped(bias)}
        linear = {"w": dense, "b": dense_bias}
        made = {"embed": {"embeddings": embedding}, "lstm/linear": gates, "linear": linear}
    else:
        made = {name: {"w": values[2 * i], "b": values[2 * i + 1]} for i, name in enumerate(_in_order(parameters))}
    return jax.tree_util.tree_map(jnp.asarray, made)


def in_keras_layout(parameters: Parameters) -> list[Array]:
    """Return Haiku's parameters in the layout of `Problem.initial`."""
    parameters = jax.tree_util.tree_map(np.asarray, parameters)
    if "lstm/linear" in parameters:
        gates, bias = _swapped(parameters["lstm/linear"]["w"]), _swapped(parameters["lstm/linear"]["b"]).copy()
        bias[64:128] += 1
        linear = parameters["linear"]
        return [parameters["embed"]["embeddings"], gates[:8], gates[8:], bias, linear["w"], linear["b"]]
    return [parameters[name][key] for name in _in_order(parameters) for key in ("w", "b")]


def _in_order(parameters: Parameters) -> list[str]:
    return sorted(parameters, key=lambda name: (not name.startswith("conv"), name))


def _swapped(values: Array) -> Array:
    """Swap the middle gates: Keras has input, forget, cell, output; Haiku has input, cell, forget, output."""
    i, first, second, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, second, first, o], axis=-1)


def main() -> None:
    problem, marks = Problem.chosen(), list[float]()
    workload = problem.workload
    fedjax.set_for_each_client_backend(os.environ.get("BACKEND", "jit"))
    body = body_of(problem.body) if problem.name == "transfer" else None
    head = softmax if FEATURES or body is None else transfer(body)
    network = {"cnn": cnn, "lstm": lstm, "transfer": head}.get(problem.name, softmax)
    embed = jax.jit(body) if FEATURES else None

    @cache
    def dataset(device: int) -> Examples:
        x, y = problem.examples(device)
        if embed:
            x = np.concatenate([embed(x[i : i + workload.batch]) for i in range(0, len(x), workload.batch)])
        return Examples({"x": x, "y": y})

    x, y = (array[:1] for array in dataset(0).all_examples().values())
    model = fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(lambda batch: network(batch["x"])),
        sample_batch={"x": jnp.asarray(x), "y": jnp.asarray(y)},
        train_loss=losses,
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(workload.learning_rate),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch, num_epochs=workload.epochs, seed=0),
    )
    drawn = jax.eval_shape(model.init, jax.random.PRNGKey(0))
    state = algorithm.init(place(drawn, problem.initial))
    key = jax.random.PRNGKey(1)
    for cohort in problem.cohorts[: problem.rounds].tolist():
        key, *keys = jax.random.split(key, 1 + len(cohort))
        state, _ = algorithm.apply(
            state, [(device, dataset(device), own) for device, own in zip(cohort, keys, strict=True)]
        )
        jax.block_until_ready(state.params)
        marks.append(time.time())
    problem.report(marks, STEPS[0], in_keras_layout(state.params))


if __name__ == "__main__":
    main()
