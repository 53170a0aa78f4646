"""Layers of the head: by their own name, by that of a nested model, by path and by pattern."""

from pathlib import Path
from typing import Any

import keras
import pytest
from keras import layers

from odt_sim import TrainableModel
from odt_sim.errors import ExportError, StrategyError
from odt_sim.export import export_model
from odt_sim.export.keras.parameters import all_layers, group_of_layers
from odt_sim.strategies.shared_parts.fedbn import FedBN

DECODER = {"decoder/conv", "decoder/norm", "decoder/mask"}


def part(name: str, channels: int, *more: Any) -> Any:
    return keras.Sequential(
        [
            layers.Input((4, 4, channels)),
            layers.Conv2D(2, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
            *more,
        ],
        name=name,
    )


def network() -> Any:
    x = keras.Input((4, 4, 1))
    decoder = part("decoder", 2, layers.Conv2D(1, 1, activation="sigmoid", name="mask"))
    return keras.Model(x, decoder(part("encoder", 1)(x)), name="network")


@pytest.mark.parametrize(
    ("head", "selected"),
    [
        (None, {"decoder/mask"}),
        ("mask", {"decoder/mask"}),
        ("decoder", DECODER),
        (["decoder/conv", "mask"], {"decoder/conv", "decoder/mask"}),
        ("dec*", DECODER),
        (["*norm"], {"encoder/norm", "decoder/norm"}),
    ],
)
def test_names_select_layers(head: Any, selected: set[str]) -> None:
    model = network()
    groups = group_of_layers(model, head)
    paths = {
        f"{nested.name}/{layer.name}": groups[id(layer)]
        for nested in model.layers
        for layer in all_layers(nested)
        if id(layer) in groups
    }
    assert {path for path, group in paths.items() if group == "head"} == selected
    assert {path for path, group in paths.items() if group == "norm"} == {"encoder/norm", "decoder/norm"} - selected


def test_head_of_several_outputs_is_not_a_layer_with_the_same_name_elsewhere() -> None:
    x = keras.Input((4, 4, 1))
    h = part("encoder", 1)(x)
    model = keras.Model(x, [part("left", 2)(h), part("right", 2)(h)])
    groups = group_of_layers(model, None)
    assert [groups[id(nested.get_layer("conv"))] for nested in model.layers[1:]] == ["body", "head", "head"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("conv", r"^head: 2 layers have the name 'conv'; expected one of encoder/conv, decoder/conv$"),
        (
            ["mask", "lost*"],
            r"^head: no layer 'lost\*' with weights; expected one of encoder, conv, norm, decoder, mask$",
        ),
    ],
)
def test_unclear_names_are_refused(head: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        group_of_layers(network(), head)


def exported(folder: Path, head: str) -> TrainableModel:
    loss = "binary_crossentropy"
    path = export_model(network(), folder / "m.tflite", loss=loss, optimizer="sgd", batch_size=2, head=head)
    return TrainableModel.load(path)


def test_fedbn_refuses_a_head_with_normalization(tmp_path: Path) -> None:
    """It would average these layers, which FedBN keeps on the devices."""
    FedBN().check(exported(tmp_path, "mask"))
    with pytest.raises(StrategyError, match=r"fedbn: the head .* contains the normalization layer decoder/norm, which"):
        FedBN().check(exported(tmp_path, "decoder"))


def test_nested_decoder_is_the_head_of_the_file(tmp_path: Path) -> None:
    groups = {parameter.name: parameter.group for parameter in exported(tmp_path, "decoder").parameters}
    assert {name for name, group in groups.items() if group == "head"} == {
        *(f"decoder/conv/{each}" for each in ("kernel", "bias")),
        *(f"decoder/norm/{each}" for each in ("gamma", "beta", "moving_mean", "moving_variance")),
        *(f"decoder/mask/{each}" for each in ("kernel", "bias")),
    }
