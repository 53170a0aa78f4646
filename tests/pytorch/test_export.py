"""PyTorch modules compute and train as in PyTorch."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.errors import ExportError
from odt_sim.export import export_model
from odt_sim.export.pytorch.module import Module, keras_model
from odt_sim.model.trainable import TrainableModel
from tests.pytorch.modules import MODULES


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def _arrays(example: tuple[torch.Tensor, ...]) -> list[NDArray[Any]]:
    return [x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy() for x in example]


def _names(model: keras.Model) -> Mapping[int, str]:
    (inner,) = [layer for layer in model.layers if isinstance(layer, Module)]
    named = [(f"{own.module_path}.{name}", v) for own in inner.weights_of_layers for name, v in own.own.items()]
    return {id(v): name.lstrip(".") for name, v in named}


@pytest.mark.parametrize("name", MODULES)
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


@pytest.mark.parametrize("name", ["Residual", "Gpt"])
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


def test_untraceable_module_is_refused() -> None:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > 0 else self.layer(-x)

    with pytest.raises(ExportError, match=r"torch.export cannot trace Branches"):
        keras_model(Branches(), torch.zeros(2, 3), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"example": (torch.zeros(2, 3), torch.zeros(2))}, r"example: Linear takes other inputs than the 2 given \(too many"),
        ({"loss": torch.nn.CrossEntropyLoss()}, r"loss: expected a name, .*found PyTorch's CrossEntropyLoss; "),
        ({"optimizer": torch.optim.SGD}, r"optimizer: expected a Keras optimizer, .*found the class torch\.optim\.sgd\.SGD"),
    ],
)  # fmt: skip
def test_parts_of_pytorch_that_keras_replaces_are_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {"example": torch.zeros(2, 3), "loss": "sparse_categorical_crossentropy", "optimizer": "SGD", **settings}
    with pytest.raises(ExportError, match=message):
        export_model(torch.nn.Linear(3, 2), tmp_path / "m.tflite", **given)
