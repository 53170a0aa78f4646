"""PyTorch modules compute and train as in PyTorch."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from numpy.typing import NDArray

import odt_sim.export
from odt_sim.device.device import Device
from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export import export_model
from odt_sim.export.keras.parameters import group_of_layers
from odt_sim.export.keras.split_model import split_before_head
from odt_sim.export.torch.checks import own_gradients
from odt_sim.export.torch.module import Module, keras_model
from odt_sim.model.trainable import TrainableModel
from tests.pytorch.modules import MODULES

SLOW = {"Ordered", "Projected", "Residual", "Rounded", "Scattered", "Translator"}


def slow(name: str) -> Any:
    """Return a slow case for parametrization."""
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def _arrays(example: tuple[torch.Tensor, ...]) -> list[NDArray[Any]]:
    return [x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy() for x in example]


def _names(model: keras.Model) -> Mapping[int, str]:
    (inner,) = [layer for layer in model.layers if isinstance(layer, Module)]
    named = [(f"{own.module_path}.{name}", v) for own in inner.weights_of_layers for name, v in own.own.items()]
    return {id(v): name.lstrip(".") for name, v in named}


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("name", [slow(name) if name in SLOW else name for name in MODULES])
def test_outputs_gradients_and_statistics_equal_those_of_pytorch(name: str) -> None:
    create, example = MODULES[name]
    module = create()
    model = keras_model(module, example, 4)
    expected = module.eval()(*example).detach().numpy()
    np.testing.assert_allclose(model(_arrays(example), training=False), expected, rtol=1e-5, atol=1e-5)
    (module.train()(*example) ** 2).mean().backward()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(_arrays(example), training=True) ** 2)
    names, own = _names(model), dict(module.named_parameters())
    gradients = tape.gradient(loss, model.trainable_variables)
    assert len(gradients) == len(own)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        wanted = own[names[id(variable)]].grad
        found = np.zeros(variable.shape) if gradient is None else tf.convert_to_tensor(gradient)
        wanted = np.zeros(variable.shape) if wanted is None else wanted.numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-6, err_msg=names[id(variable)])
    for variable in model.non_trainable_variables:
        if id(variable) in names:
            buffer = dict(module.named_buffers())[names[id(variable)]]
            np.testing.assert_allclose(variable, buffer.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "Gpt",
        "Channels",
        *map(slow, ["Residual", "Spectrogram", "Columns", "Indexed", "Rounded", "Ordered", "Scattered"]),
    ],
)
def test_exported_module_trains_as_in_pytorch(tmp_path: Path, name: str) -> None:
    create, (x,) = MODULES[name]
    module = create()
    path = export_model(
        module, tmp_path / "m.tflite", example=x, loss="mean_squared_error", optimizer="sgd", batch_size=4
    )
    model = TrainableModel.load(path)
    (inputs,) = _arrays((x,))
    y = np.random.default_rng(0).normal(size=model.y.shape).astype(np.float32)
    device = Device(model, (inputs, y))
    twin = copy.deepcopy(module).train()
    optimizer = torch.optim.SGD(twin.parameters(), 0.05)
    for rows in (4, 4, 3):  # the last batch is padded
        loss = ((twin(x[:rows]) - torch.tensor(y[:rows])) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert device.train_batch(inputs[:rows], y[:rows], 0.05) == pytest.approx(loss.item(), rel=1e-5)
    for parameter in model.parameters:
        wanted = twin.state_dict()[parameter.name.replace("/", ".")].numpy()
        np.testing.assert_allclose(device.weights[parameter.name], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(device.infer(inputs), twin.eval()(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_inputs_have_the_names_of_forward(tmp_path: Path) -> None:
    create, (ids, mask) = MODULES["Decoder"]
    module = create()
    path = export_model(
        module, tmp_path / "m.tflite", example={"input_ids": ids, "attention_mask": mask},
        loss="sparse_categorical_crossentropy", optimizer="sgd", batch_size=4,
    )  # fmt: skip
    x = dict(zip(("input_ids", "attention_mask"), _arrays((ids, mask)), strict=True))
    device = Device(TrainableModel.load(path), (x, x["input_ids"]))
    logits = module(ids, mask)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 11), ids.reshape(-1))
    np.testing.assert_allclose(device.infer(x), logits.detach(), rtol=1e-4, atol=1e-5)
    assert device.train_batch(x, x["input_ids"], 0.1) == pytest.approx(loss.item(), rel=1e-5)


class _Lengths(torch.nn.Module):
    """A module that reads the last valid position of each row, in two ways, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        real = torch.arange(x.shape[1]) < lengths[:, None]
        last = x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 3))[:, 0]
        mean = (x * real[..., None]).sum(1) / lengths.clamp(min=1)[:, None]
        return last + x[torch.arange(len(x)), lengths - 1] + mean


def test_file_reads_the_last_place_of_rows_by_their_lengths(tmp_path: Path) -> None:
    module, x, lengths = _Lengths(), torch.randn(4, 5, 2), torch.tensor([1, 5, 3, 2])
    path = export_model(
        module, tmp_path / "m.tflite", example=(x, lengths), loss="mean_squared_error", optimizer="sgd", batch_size=4
    )
    inputs = dict(zip(("x", "lengths"), _arrays((x, lengths)), strict=True))
    device = Device(TrainableModel.load(path), (inputs, np.zeros((4, 3), np.float32)))
    expected = module(x, lengths).detach()
    np.testing.assert_allclose(device.infer(inputs), expected, rtol=1e-4, atol=1e-5)
    assert device.train_batch(inputs, np.zeros((4, 3), np.float32), 0.1) == pytest.approx(
        (expected**2).mean().item(), rel=1e-5
    )


def _normal_loss(y: Any, parameters: Any) -> Any:
    """The negative log-likelihood of a normal distribution, given `[rows, places, mean and deviation]`."""
    error = (y - parameters[..., :1]) / parameters[..., 1:]
    return keras.ops.mean(keras.ops.log(parameters[..., 1:]) + 0.5 * keras.ops.square(error), axis=(1, 2))


class _Forecast(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, deviation = super().forward(x).chunk(2, -1)
        return torch.cat([mean, torch.nn.functional.softplus(deviation) + 1e-3], -1)


def test_example_gives_the_shape_of_the_targets(tmp_path: Path) -> None:
    module, x, y = _Forecast(3, 2), torch.randn(4, 5, 3), torch.randn(4, 5, 1)
    path = export_model(
        module, tmp_path / "m.tflite", example=((x,), y), loss=_normal_loss, optimizer="sgd", batch_size=4
    )
    device = Device(TrainableModel.load(path), (x.numpy(), y.numpy()))
    parameters = module(x)
    expected = torch.nn.functional.gaussian_nll_loss(parameters[..., :1], y, parameters[..., 1:] ** 2)
    assert device.train_batch(x.numpy(), y.numpy(), 0.1) == pytest.approx(expected.item(), rel=1e-5)


def test_example_by_name_may_leave_arguments_out() -> None:
    class Cached(torch.nn.Module):
        def forward(self, x: torch.Tensor, cache: Any = None, scale: Any = None, **_: Any) -> torch.Tensor:
            return x * scale

    model = keras_model(Cached(), {"scale": torch.full((1, 2), 3.0), "x": torch.zeros(1, 2)}, 1)
    assert [x.name for x in model.inputs] == ["x", "scale"]
    np.testing.assert_array_equal(model([np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])]), [[3.0, 8.0]])


class _Two(torch.nn.Module):
    """Two heads on one layer, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(2, 4)
        self.kind, self.rating = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.body(x).relu_()
        return {"kind": self.kind(features), "rating": self.rating(features)}


def test_outputs_have_the_names_of_a_mapping() -> None:
    module, x = _Two(), torch.ones(1, 2)
    found = keras_model(module, x, 1)([x.numpy()])
    assert list(found) == ["kind", "rating"]
    np.testing.assert_allclose(found["rating"], module(x)["rating"].detach(), rtol=1e-5)


def test_module_is_cut_before_its_heads() -> None:
    module, x = _Two(), torch.ones(1, 2)
    model = keras_model(module, x, 1)
    body, head = split_before_head(model, group_of_layers(model, ["kind", "rating"]))
    np.testing.assert_allclose(body([x.numpy()]), module.body(x).relu().detach(), rtol=1e-5)
    np.testing.assert_allclose(head(body([x.numpy()]))["kind"], module(x)["kind"].detach(), rtol=1e-5)
    assert [v.path for v in head.trainable_weights] == ["kind/weight", "kind/bias", "rating/weight", "rating/bias"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "kind",
            r"^embed: the part after the head of the PyTorch module also takes 'rating\.weight'; leave embed out, or",
        ),
        (
            ["body", "kind", "rating"],
            r"^embed: the head of the PyTorch module takes the module's inputs directly; leave embed",
        ),
    ],
)
def test_module_that_cannot_be_cut_is_refused(head: str | list[str], message: str) -> None:
    model = keras_model(_Two(), torch.ones(1, 2), 1)
    with pytest.raises(ExportError, match=message):
        split_before_head(model, group_of_layers(model, head))


def test_body_that_draws_has_no_embeddings(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    with pytest.raises(ExportError, match=r"^embed: the body draws random numbers in training mode, .* call train\(\)"):
        export_model(
            module, tmp_path / "m.tflite", example=torch.zeros(1, 2), loss="mean_squared_error", optimizer="sgd",
            batch_size=2, embed=True,
        )  # fmt: skip


def test_weights_without_values_are_refused() -> None:
    with pytest.raises(
        ExportError, match=r"^torch: '0\.weight' has no values, since it is on the device 'meta'; build"
    ):
        keras_model(torch.nn.Sequential(torch.nn.Linear(2, 1, device="meta")), torch.zeros(1, 2), 1)


def test_inputs_that_forward_takes_as_a_list_are_numbered() -> None:
    class Sums(torch.nn.Module):
        def forward(self, *xs: torch.Tensor) -> torch.Tensor:
            return xs[0] + xs[1]

    model = keras_model(Sums(), (torch.zeros(1, 2), torch.zeros(1, 2)), 1)
    assert [x.name for x in model.inputs] == ["xs0", "xs1"]


def test_input_may_have_the_name_of_its_module() -> None:
    class Signals(torch.nn.Module):
        def forward(self, signals: torch.Tensor) -> torch.Tensor:
            return 2 * signals

    model = keras_model(Signals(), torch.zeros(1, 2), 1)
    assert ([x.name for x in model.inputs], model.name) == (["signals"], "signals")


def test_dropout_of_attention_is_that_of_training() -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            zeros, rate = torch.zeros_like(x), 0.5 if self.training else 0.0
            return torch.nn.functional.scaled_dot_product_attention(zeros, zeros, x, dropout_p=rate)

    model = keras_model(Attention(), torch.eye(64)[None], 1)
    weights = model([np.eye(64, dtype=np.float32)[None]], training=True).numpy() * 64
    assert {*np.unique(weights)} == {0.0, 2.0}
    assert 0.4 < (weights == 0).mean() < 0.6
    np.testing.assert_allclose(model([np.eye(64, dtype=np.float32)[None]], training=False), 1 / 64)


@pytest.mark.parametrize("clips", [False, True])
def test_embedding_takes_one_step_for_all_places_of_a_row(tmp_path: Path, clips: bool) -> None:
    embedding, head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 3)
    module = torch.nn.Sequential(embedding, torch.nn.Flatten(0, 1), head, torch.nn.Unflatten(0, (4, 3)))
    ids = torch.tensor([[1, 1, 2]] * 4)
    optimizer = keras.optimizers.SGD(0.5, clipnorm=0.01) if clips else keras.optimizers.Adam(0.01)
    path = export_model(
        module, tmp_path / "m.tflite", example=ids, loss="mean_squared_error", optimizer=optimizer, batch_size=4
    )
    model = TrainableModel.load(path)
    (inputs,) = _arrays((ids,))
    device = Device(model, (inputs, np.ones(model.y.shape, np.float32)))
    device.train()
    twin = torch.optim.SGD(module.parameters(), 0.5) if clips else torch.optim.Adam(module.parameters(), 0.01, eps=1e-7)
    torch.nn.functional.mse_loss(module(ids), torch.ones(model.y.shape)).backward()
    if clips:
        for parameter in module.parameters():
            torch.nn.utils.clip_grad_norm_([parameter], 0.01)
    twin.step()
    np.testing.assert_allclose(device.weights["0/weight"], embedding.weight.detach(), rtol=1e-4, atol=1e-6)


def test_part_in_evaluation_mode_stays_there(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    module[1].eval()
    model = keras_model(module, torch.zeros(2, 3), 2)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(model([x], training=True), module(torch.tensor(x)).detach(), rtol=1e-5, atol=1e-6)
    assert not module[1].training
    assert module.training


def test_frozen_normalization_is_warned_of() -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(4).requires_grad_(False), torch.nn.Linear(4, 2))
    with pytest.warns(ExportWarning, match=r"^torch: 0: frozen by requires_grad=False, so the file keeps"):
        keras_model(module, torch.zeros(2, 4), 2)


class _Centred(torch.nn.Module):
    """A module that subtracts a moving average, stored in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.layer(x - self.mean)


class _Detached(_Centred):
    """Changes the buffer through a view."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.detach().mul_(0.9)
        return self.layer(x - self.mean)


class _Kept(_Centred):
    """A module that writes to the buffer in training, and reads it afterwards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.copy_(x.mean(0))
            return self.layer(x)
        return self.layer(x - self.mean)


class _Spectral(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3)))


class _SpectralHook(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3)))


class _Tracking(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            torch.nn.Unflatten(1, (2, 2)), torch.nn.InstanceNorm1d(2, track_running_stats=True), torch.nn.Flatten()
        )
        self.layer = torch.nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (_Centred, r"^torch: op mul_ changes the buffer 'mean', but a file only supports"),
        (_Detached, r"^torch: op mul_ changes the buffer 'mean', but a file only supports"),
        (_Kept, r"^torch: op copy_ changes the buffer 'mean', but a file only supports"),
        (
            _Spectral,
            r"^torch: _SpectralNorm of module '0\.parametrizations\.weight\.0' has spectral normalization, .*; use",
        ),
        (
            _SpectralHook,
            r"^torch: Linear of module '0' has spectral normalization, .*; use weight_norm, or continue training without",
        ),
        (_Tracking, r"^torch: op instance_norm of module '1' keeps running statistics, .*track_running_stats=False$"),
    ],
)
def test_state_that_a_file_does_not_carry_is_refused(create: type[torch.nn.Module], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        keras_model(create(), torch.zeros(2, 4), 2)


class _Counting(torch.nn.Module):
    """A module with an unused count of calls, two names for its BatchNorm, and constants created at run time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.again = self.norm
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        x = self.again(self.layer(self.norm(x))) @ torch.eye(4)
        return x * torch.tensor(2.0) + torch.tensor([1.0, 2, 3, 4])


@pytest.mark.parametrize("training", [False, True])
def test_counts_and_constants_are_no_state(training: bool) -> None:
    module, x = _Counting(), torch.arange(12.0).reshape(3, 4)
    model = keras_model(module, x, 3)
    expected = module.train(training)(x).detach()
    np.testing.assert_allclose(model([x.numpy()], training=training), expected, rtol=1e-5, atol=1e-5)


class _Drawing(torch.nn.Linear):
    """Draws a class for each row by Gumbel's softmax while it trains, and uniform and normal numbers of no weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        if not self.training:
            return x
        nothing = torch.empty_like(x).uniform_(-1, 1) * torch.empty_like(x).normal_(2, 3) * 0
        return torch.nn.functional.gumbel_softmax(x, hard=True) + nothing


def test_gumbels_softmax_draws_classes_with_their_probabilities(tmp_path: Path) -> None:
    module, x, y = _Drawing(4, 3), torch.randn(1, 4).repeat(2000, 1), np.zeros((2000, 3), np.float32)
    path = export_model(
        module, tmp_path / "m.tflite", example=x, loss="mean_squared_error", optimizer="sgd", batch_size=2000
    )
    drawn = np.asarray(keras_model(module, x, 2000)([x.numpy()], training=True))
    np.testing.assert_allclose(drawn.mean(0), torch.softmax(module.eval()(x[0]), 0).detach(), atol=0.05)
    assert Device(TrainableModel.load(path), (x.numpy(), y)).train_batch(x.numpy(), y, 0.1) == pytest.approx(1 / 3)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class _Swish(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        gate = torch.sigmoid(x)
        return gradient * (gate + x * gate * (1 - gate))


class _Own(torch.nn.Sequential):
    """Has a function with a backward of its own behind its layers."""

    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function.apply(super().forward(x))


class _Hooked(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)
        self.bias.register_hook(lambda gradient: gradient / 2)


class _HookedInside(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x)
        if result.requires_grad:
            result.register_hook(lambda gradient: gradient / 2)
        return result


class _Clipped(torch.autograd.Function):
    """A straight-through estimator: at 0, its gradient is that of forward."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-1, 1)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def test_gradients_are_compared_away_from_an_example_of_zeros() -> None:
    module = torch.nn.Linear(4, 3)
    torch.nn.init.ones_(module.weight)  # clipped at any inputs that are clearly positive
    module.forward = lambda x: _Clipped.apply(torch.nn.functional.linear(x, module.weight, module.bias))
    with pytest.raises(ExportError, match=r"because of _Clipped\.backward"):
        keras_model(module, torch.zeros(1, 4), 8)


class _Doubled(torch.autograd.Function):
    """A function whose gradient is that of forward."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


@pytest.mark.parametrize("example", [torch.ones(1, 4), torch.tensor([[1.0, 2.0, 3.0, 4.0]])])
def test_comparison_of_gradients_keeps_positive_inputs_positive(example: torch.Tensor) -> None:
    module = torch.nn.Linear(4, 3)
    module.forward = lambda x: _Doubled.apply(torch.nn.functional.linear(x.log(), module.weight, module.bias))
    keras_model(module, example, 8)


def test_functions_are_found_if_apply_is_written_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is since PyTorch 2.14."""
    monkeypatch.setattr(torch.autograd.Function, "apply", torch._C._FunctionBase.__dict__["apply"])
    with own_gradients(torch.nn.Linear(1, 1)) as names:
        assert _Reversed.apply(torch.ones(2)).tolist() == [1, 1]
    assert names == ["_Reversed.backward"]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (
            lambda: _Own(_Reversed),
            r"'\S+' differs from that of forward, because of _Reversed\.backward, but a file uses",
        ),
        (_Hooked, r"'bias' differs from that of forward, because of a hook of parameter 'bias', but"),
        (lambda: _HookedInside(4, 3), r"'weight' differs from that of forward, because of a hook of a tensor, but"),
    ],
)
def test_gradients_other_than_those_of_forward_are_refused(create: Callable[[], torch.nn.Module], message: str) -> None:
    module, x = create(), torch.randn(4, 4)
    statistics = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with pytest.raises(ExportError, match=f"^torch: the gradient of {message}"):
        keras_model(module, x, 4)
    assert all(torch.equal(buffer, statistics[name]) for name, buffer in module.named_buffers())


def test_function_whose_backward_is_that_of_its_forward_exports() -> None:
    module, x = _Own(_Swish), torch.randn(4, 4)
    found = keras_model(module, x, 4)([x.numpy()], training=True)
    np.testing.assert_allclose(found, module(x).detach(), rtol=1e-5, atol=1e-5)


def test_size_that_depends_on_values_is_refused_by_the_op_that_has_it() -> None:
    class Halved(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x) + 0
            x[x < 0] *= 0.5
            return x

    with pytest.raises(ExportError, match=r"^torch: op index indexes by a mask, .*; multiply by the mask, or use"):
        keras_model(Halved(4, 3), torch.zeros(2, 4), 2)


def test_gradient_by_frequency_is_refused() -> None:
    module = torch.nn.Embedding(5, 2, scale_grad_by_freq=True)
    with pytest.raises(ExportError, match=r"^torch: op embedding has scale_grad_by_freq=True, expected False$"):
        keras_model(module, torch.zeros(2, 3, dtype=torch.long), 2)


def test_error_of_an_op_is_one_line() -> None:
    class Double(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).double()

    with pytest.raises(
        ExportError, match=r"^torch: expected tensors of float32, integers or booleans, found float64; call"
    ):
        keras_model(Double(4, 3), torch.zeros(2, 4), 2)


class _Unsqueezed(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x) + 0
        result.unsqueeze(0).mul_(2)
        return result


class _Transposed(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x) + 0
        result[:2].t().mul_(2)
        return result


class _Stale(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x) + 0
        first = result[:, :1]
        result[:, :2] *= 2
        return result + first


@pytest.mark.parametrize("create", [_Unsqueezed, _Transposed, _Stale])
def test_view_that_is_changed_in_place_is_refused(create: type[torch.nn.Linear]) -> None:
    with pytest.raises(
        ExportError, match=r"^torch: op mul_ changes a view in place; use the op without the underscore"
    ):
        keras_model(create(4, 3), torch.zeros(2, 4), 2)


def test_module_that_mixes_rows_is_refused(tmp_path: Path) -> None:
    class Centring(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x - x.mean(0))

    settings = {"example": torch.zeros(2, 3), "loss": "mean_squared_error", "optimizer": "SGD"}
    with pytest.raises(
        ExportError,
        match=r"^model 'centring': .*; compute it from each example separately, with the batch as the "
        r"first axis$",
    ):
        export_model(Centring(3, 2), tmp_path / "m.tflite", **settings, batch_size=4)


def test_roles_and_groups_follow_the_module() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    module[0].weight.requires_grad = False
    model = keras_model(module, torch.zeros(2, 3), 2)
    assert [v.path for v in model.trainable_weights] == ["0/bias", "1/weight", "1/bias", "2/weight", "2/bias"]
    assert [v.path for v in model.non_trainable_weights] == ["0/weight", "1/running_mean", "1/running_var"]
    assert module.training


def test_unknown_op_is_refused_by_name() -> None:
    class Inverse(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.linalg.pinv(self.weight)

    with pytest.raises(ExportError, match=r"torch: op linalg_\w+ has no TensorFlow function"):
        keras_model(Inverse(), torch.zeros(2, 3), 2)


class _Auxiliary(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return (super().forward(x), x) if self.training else super().forward(x)


class _Autocast(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


class _Packed(torch.nn.LSTM):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        packed = torch.nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([2]), batch_first=True)
        return super().forward(packed)[1][0]


class _Complex(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 1j


class _ComplexWeight(torch.nn.Module):
    def __init__(self, *_: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).abs()


class _Bags(torch.nn.EmbeddingBag):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x.flatten().long(), torch.tensor([0, 2]))


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (
            _Auxiliary,
            r"^torch: _Auxiliary returns 2 outputs in training and 1 in evaluation; turn off auxiliary outputs",
        ),
        (
            _Autocast,
            r"^torch: the module runs a block under torch\.autocast, but a file computes in float32; leave autocast",
        ),
        (
            _Packed,
            r"^torch: torch\.export cannot trace _Packed \(sizes of packed sequences depend on their lengths; pass the",
        ),
        (
            _Complex,
            r"^torch: forward returns complex numbers, but the inputs and outputs of a file are real; use torch\.v",
        ),
        (
            _ComplexWeight,
            r"^torch: 'weight' of _ComplexWeight of module '' is complex, .* torch\.view_as_real\(weight\)",
        ),
        (
            _Bags,
            r"^torch: op embedding_bag .*has bags of different lengths; pass indices `\[rows, length\]`, with padding",
        ),
        (
            lambda *_: torch.ao.nn.quantized.dynamic.Linear(3, 2),
            r"^torch: Linear of module '' is quantized and computes with integers, .*; pass the module from before convert",
        ),
        (
            lambda *_: torch.nn.LazyLinear(2),
            r"^torch: LazyLinear of module '' has no weights yet; call the module once",
        ),
        (
            lambda *_: torch.nn.BatchNorm1d(3, momentum=None),
            r"^torch: BatchNorm1d of module '' has momentum=None, which",
        ),
        (
            lambda *_: torch.jit.script(torch.nn.Linear(3, 2)),
            r"^torch: the module is TorchScript, which cannot be traced",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_what_no_file_computes_is_refused(create: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        keras_model(create(3, 2), torch.zeros(2, 3), 2)


def test_normalization_of_rows_in_another_order_is_refused() -> None:
    class Reversed(torch.nn.BatchNorm1d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.flip(0).reshape(4, 2)
            return torch.nn.functional.batch_norm(rows, self.running_mean, self.running_var, training=self.training)

    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Unflatten(0, (1, 2)), torch.nn.Flatten(0, 1), Reversed(2))
    with pytest.raises(
        ExportError, match=r"^torch: op batch_norm of module '3' normalizes .* keep the examples on axis 0"
    ):
        keras_model(module, torch.zeros(2, 4), 2)


class _TimesFirst(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.permute(1, 2, 0)).permute(2, 0, 1)


@pytest.mark.parametrize("frames", [2, 3])
def test_normalization_with_the_batch_on_another_axis_is_refused(frames: int) -> None:
    with pytest.raises(
        ExportError, match=rf"^torch: op batch_norm of module 'norm' normalizes {frames} rows of 2 examples"
    ):
        keras_model(_TimesFirst(), torch.zeros(2, frames, 4), 2)


def test_stochastic_depth_keeps_rows_whole() -> None:
    class Depth(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x.new_empty(x.shape[0], 1).bernoulli_(0.5).div_(0.5) if self.training else x

    model = keras_model(Depth(), torch.ones(400, 2), 400)
    rows = model([np.ones((400, 2), np.float32)], training=True).numpy()
    assert {*np.unique(rows)} == {0.0, 2.0}
    assert 120 < rows[:, 0].sum() / 2 < 280
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])


def test_dropout_between_recurrent_layers_is_that_of_training() -> None:
    module = torch.nn.LSTM(2, 64, 2, dropout=0.5)
    model = keras_model(torch.nn.Sequential(module), torch.ones(3, 2), 3)
    x = [np.ones((3, 2), np.float32)]
    expected = module.eval()(torch.ones(3, 2))[0].detach()
    np.testing.assert_allclose(model(x, training=False)[0], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(model(x, training=True)[0] - expected).max() > 1e-3


@pytest.mark.parametrize("channels", [False, True])
def test_alpha_dropout_keeps_mean_and_deviation(channels: bool) -> None:
    module = torch.nn.FeatureAlphaDropout(0.4) if channels else torch.nn.AlphaDropout(0.4)
    x = np.random.default_rng(0).normal(size=(60, 60, 4)).astype(np.float32)
    dropped = keras_model(module, torch.tensor(x), 60)([x], training=True).numpy()
    assert dropped.mean() == pytest.approx(0, abs=0.08)
    assert dropped.std() == pytest.approx(1, abs=0.08)


def test_untraceable_module_is_refused() -> None:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > 0 else self.layer(-x)

    with pytest.raises(
        ExportError, match=r"cannot trace Branches \(a branch or a size depends on the values of a tensor[^()]*\)$"
    ):
        keras_model(Branches(), torch.zeros(2, 3), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"example": (torch.zeros(2, 3), torch.zeros(2))}, r"example: Linear does not accept the 2 given inputs \(too many"),
        ({"loss": torch.nn.CrossEntropyLoss()}, r"loss: expected a name, .*found PyTorch's CrossEntropyLoss; "),
        ({"loss": torch.nn.CTCLoss()}, r"found PyTorch's CTCLoss; .* such as ctc$"),
        ({"optimizer": torch.optim.SGD}, r"optimizer: expected a Keras optimizer, .*found the class torch\.optim\.sgd\.SGD"),
    ],
)  # fmt: skip
def test_parts_of_pytorch_that_keras_replaces_are_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {"example": torch.zeros(2, 3), "loss": "sparse_categorical_crossentropy", "optimizer": "SGD", **settings}
    with pytest.raises(ExportError, match=message):
        export_model(torch.nn.Linear(3, 2), tmp_path / "m.tflite", **given)


NOTES_ITSELF = """
import sys
print(__name__)
if __name__ == "tensorflow":
    raise ModuleNotFoundError("stands for TensorFlow", name=__name__)
"""


def test_triton_is_imported_before_tensorflow(tmp_path: Path) -> None:
    for name in ("triton", "tensorflow"):
        (tmp_path / f"{name}.py").write_text(NOTES_ITSELF)
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "from odt_sim.export import export_model"]
    child = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert child.stdout.split() == ["triton", "tensorflow"], child.stderr


def test_triton_is_not_imported_after_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its LLVM aborts the process beside TensorFlow's."""
    (tmp_path / "triton.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert odt_sim.export.export_model is export_model
    with pytest.raises(ImportError, match="triton"):
        import_module("triton")
