"""Metrics sent by phones: those of the model are accepted, all others exclude the phone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from odt_sim import TrainableModel
from odt_sim.phone.phones import PhoneError
from odt_sim.phone.runtime import checked_figures

GOOD = {"loss": 1, "accuracy": 0.5, "examples": 10}


def test_figures_are_ordered_as_the_metrics_of_the_model(softmax: TrainableModel) -> None:
    found = checked_figures(GOOD, softmax, 10)
    assert [*found.items()] == [("accuracy", 0.5), ("loss", 1.0), ("examples", 10)]


def test_null_is_an_undefined_figure(softmax: TrainableModel) -> None:
    found = checked_figures({**GOOD, "auc": None}, softmax, 10)
    assert math.isnan(found["auc"])


def test_loss_alone_needs_no_number_of_examples(softmax: TrainableModel) -> None:
    assert checked_figures({"loss": 2.5}, softmax, 10, only_loss=True) == {"loss": 2.5, "examples": 10}


def test_loss_that_may_be_below_zero_is_taken(softmax: TrainableModel) -> None:
    assert softmax.manifest
    outputs = (replace(softmax.outputs[0], loss="cosine_similarity"),)
    similar = replace(softmax, manifest=replace(softmax.manifest, outputs=outputs))
    assert checked_figures({"loss": -1.0}, similar, 10, only_loss=True)["loss"] == -1.0


def test_figures_of_several_outputs_have_their_names(heads: TrainableModel) -> None:
    names = ("loss", "loss_kind", "loss_size", "accuracy_kind", "mse_size")
    found = checked_figures({**dict.fromkeys(names, 0.5), "examples": 10}, heads, 10)
    assert found == {**dict.fromkeys(names, 0.5), "examples": 10}
    for name in ("loss", "loss_kind"):
        with pytest.raises(
            PhoneError, match=f"^phone sent wrong metrics: {name}: expected a finite number of at least 0"
        ):
            checked_figures({"loss": 1.0, "examples": 10, name: -1.0}, heads, 10)


def test_loss_is_undefined_where_no_position_counts(softmax: TrainableModel) -> None:
    assert softmax.manifest
    outputs = (replace(softmax.outputs[0], ignore_class=255),)
    padded = replace(softmax, manifest=replace(softmax.manifest, outputs=outputs))
    assert checked_figures({"examples": 10}, padded, 10) == {"examples": 10}
    with pytest.raises(PhoneError, match=r"^phone sent no metrics$"):
        checked_figures({}, padded, 10, only_loss=True)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        *((figures, "sent no metrics") for figures in (None, [], 3, {}, {"accuracy": 0.5, "examples": 10})),
        ({"loss": 1.0}, "sent wrong metrics: examples: expected 10, found nothing"),
        *(
            ({**GOOD, "examples": number}, "sent wrong metrics: examples: expected 10, found .{1,20}")
            for number in (None, -5, 3.7, 11, "10", [10], math.nan, 10**400)
        ),
        *(
            ({**GOOD, name: 1.0}, r"sent wrong metrics: expected accuracy, loss, balanced_accuracy, auc, found \S.*")
            for name in ("device", "seen", "not_evaluated", "mse", "accuracy\n<b>")
        ),
        *(
            ({**GOOD, name: value}, f"sent wrong metrics: {name}: expected {expected}")
            for name, value, expected in (
                ("accuracy", 5.0, "0 to 1 or null, found 5.0"),
                ("accuracy", -0.1, "0 to 1 or null, found -0.1"),
                ("accuracy", True, "0 to 1 or null, found True"),
                ("accuracy", "0.5", "0 to 1 or null, found str"),
                ("auc", 1.5, "at most 1 or null, found 1.5"),
                ("loss", math.nan, "a finite number of at least 0 or null, found nan"),
                ("loss", -math.inf, "a finite number of at least 0 or null, found -inf"),
                ("loss", 10**400, "a finite number of at least 0 or null, found 10{19}"),
                ("loss", -0.01, "a finite number of at least 0 or null, found -0.01"),
                ("loss", [1.0], "a finite number of at least 0 or null, found list"),
            )
        ),
    ],
)
def test_invalid_figures_are_refused(figures: Any, message: str, softmax: TrainableModel) -> None:
    with pytest.raises(PhoneError, match=f"^phone {message}$"):
        checked_figures(figures, softmax, 10)
