"""The models of the workloads in idiomatic PyTorch, for pfl-research, Flower and the bare loop."""

from functools import cache

import torch
from torch import Tensor, nn

from peers.workloads import Array, Problem

SPATIAL = 5, 5, 32  # the CNN's activations before Flatten: channels are last in Keras, first in PyTorch
BEHIND_FLATTEN, EMBEDDING = ("cnn", 4), ("lstm", 0)  # parameters with a special layout, by workload and index


class Softmax(nn.Module):
    """A softmax regression; also the head on the features of a frozen body."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(x)


class Cnn(nn.Module):
    """Two 3x3 convolutions with ReLU and 2x2 max-pooling, and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Lstm(nn.Module):
    """An LSTM that predicts the next character at each position; returns `[batch, characters, positions]`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 64, batch_first=True)
        self.lstm.bias_hh_l0.requires_grad_(False).zero_()  # Keras and Haiku have one bias
        self.classifier = nn.Linear(64, 80)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.lstm(self.embedding(x))[0]).transpose(1, 2)


class MobileNet(nn.Module):
    """A frozen MobileNet, which needs no gradients, with a trainable dense layer on top."""

    def __init__(self, body: list[Array]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        strides = iter([2, *(stride for s in (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1) for stride in (s, 1))])
        for kernel, *norm in zip(*(body[i::5] for i in range(5)), strict=True):
            layers += _convolution(kernel, norm, next(strides), depthwise=len(layers) > 0 and kernel.shape[-1] == 1)
        self.body = nn.Sequential(*layers).eval().requires_grad_(False)
        self.classifier = nn.Linear(256, 10)

    def features(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.body(2 * x - 1).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def _convolution(kernel: Array, norm: list[Array], stride: int, depthwise: bool) -> list[nn.Module]:
    """Return a convolution with Keras's padding, batch normalization and ReLU6."""
    size, _, channels, filters = kernel.shape
    out, groups = (channels, channels) if depthwise else (filters, 1)
    layers: list[nn.Module] = [nn.ZeroPad2d((0, 1, 0, 1))] if stride == 2 else []
    convolution = nn.Conv2d(channels, out, size, stride, 0 if stride == 2 else size // 2, groups=groups, bias=False)
    order = (2, 3, 0, 1) if depthwise else (3, 2, 0, 1)
    normalization = nn.BatchNorm2d(out, eps=1e-3)
    with torch.no_grad():
        convolution.weight.copy_(torch.from_numpy(kernel.transpose(order).copy()))
        for target, value in zip(
            (normalization.weight, normalization.bias, normalization.running_mean, normalization.running_var),
            norm,
            strict=True,
        ):
            target.copy_(torch.from_numpy(value))
    return [*layers, convolution, normalization, nn.ReLU6()]


def network(problem: Problem, features: bool = False) -> nn.Module:
    """Return the workload's model with its initial weights.

    Args:
        problem: The workload.
        features: Whether the input is a frozen body's features, so that the model is only the head.
    """
    made: nn.Module
    if problem.name == "transfer":
        made = Softmax(256) if features else MobileNet(problem.body)
    else:
        made = {"softmax": lambda: Softmax(60), "cnn": Cnn, "lstm": Lstm}[problem.name]()
    with torch.no_grad():
        for place, (parameter, value) in enumerate(zip(trained(made), problem.initial, strict=True)):
            parameter.copy_(torch.from_numpy(_from_keras(problem.name, place, value).copy()))
    return made


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the trained parameters in Keras's order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def in_keras_layout(problem: Problem, values: list[Tensor]) -> list[Array]:
    """Return trained parameters in the layout of `Problem.initial`."""
    return [_to_keras(problem.name, place, value.detach().numpy()) for place, value in enumerate(values)]


def tensors(problem: Problem, device: int, features: bool = False) -> tuple[Tensor, Tensor]:
    """Return a device's examples, with channels first.

    Args:
        problem: The workload.
        device: The device.
        features: Whether to return a frozen body's features, computed here in batches, instead of `x`.
    """
    x, y = (torch.from_numpy(array) for array in problem.examples(device))
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    if features:
        body = _body(problem)
        x = torch.cat([body.features(rows) for rows in x.split(problem.workload.batch)])
    return x.long() if problem.name == "lstm" else x, y.long()


@cache
def _body(problem: Problem) -> MobileNet:
    return MobileNet(problem.body)


def _from_keras(workload: str, place: int, value: Array) -> Array:
    if value.ndim == 4:
        return value.transpose(3, 2, 0, 1)
    if (workload, place) == BEHIND_FLATTEN:
        return value.reshape(*SPATIAL, -1).transpose(3, 2, 0, 1).reshape(-1, len(value))
    return value if (workload, place) == EMBEDDING else value.T


def _to_keras(workload: str, place: int, value: Array) -> Array:
    if value.ndim == 4:
        return value.transpose(2, 3, 1, 0)
    if (workload, place) == BEHIND_FLATTEN:
        height, width, channels = SPATIAL
        return value.reshape(-1, channels, height, width).transpose(2, 3, 1, 0).reshape(-1, len(value))
    return value if (workload, place) == EMBEDDING else value.T
