"""Reference examples of a subject, and the recorded calls that a phone repeats."""

from typing import Any

import numpy as np
import pytest

from odt_sim import TrainableModel
from odt_sim.device.runtime import Runtime
from odt_sim.errors import DataError
from odt_sim.model.reading.flatbuffer import TensorInfo
from odt_sim.phone.recording import Recording, record
from odt_sim.phone.subject import STEPS, Subject, source_of


def values(recording: Recording, stored: dict[str, Any]) -> np.ndarray[Any, Any]:
    count = int(np.prod(stored["shape"]))
    return np.frombuffer(recording.values, stored["dtype"], count, stored["start"]).reshape(stored["shape"])


@pytest.mark.parametrize(
    "name",
    [
        *("softmax", "adam", "regression", "softmax_with_offset", "softmax_with_embedding"),
        *("recommender", "recommender_of_own_loss", "heads", "termed"),
    ],
)
def test_recorded_calls_repeat_in_a_fresh_interpreter(name: str, request: pytest.FixtureRequest) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    recording = record(Subject.random(model))
    runtime = Runtime(model)
    for call in recording.calls:
        inputs = {name: values(recording, stored) for name, stored in call["inputs"].items()}
        outputs = runtime.call(call["signature"], **inputs)
        assert outputs.keys() == call["outputs"].keys()
        for key, stored in call["outputs"].items():
            np.testing.assert_array_equal(outputs[key], values(recording, stored))
            assert stored["start"] % 8 == 0
    assert {call["signature"] for call in recording.calls} == set(model.signatures)


def test_training_repeats_after_the_state_is_set_back(adam: TrainableModel) -> None:
    recording = record(Subject.random(adam))
    trained = [call for call in recording.calls if call["signature"] == "train"]
    losses = [float(values(recording, call["outputs"]["loss"])) for call in trained]
    assert len(losses) == STEPS + 1
    assert losses[-1] == losses[0] != losses[1]


def test_subject_takes_real_rows_in_their_order(softmax: TrainableModel) -> None:
    x, y = np.random.default_rng(0).random((40, 8, 8, 1)).astype(np.float32), np.arange(40, dtype=np.int32) % 10
    subject = Subject.of(softmax, x, y, "data mine")
    assert len(subject.batches) == STEPS
    np.testing.assert_array_equal(np.concatenate([batch.y for batch in subject.batches])[:45], [*y, *y[:5]])
    assert subject.labels == tuple("0123456789")
    assert subject.source == "drawing"
    with pytest.raises(DataError, match="data mine, x: expected examples of shape"):
        Subject.of(softmax, x[:, :7], y, "data mine")


@pytest.mark.parametrize(
    ("name", "source", "labels"),
    [
        ("har_cnn", "motion", 6),
        ("regression", "rows", 0),
        ("several_labels", "rows", 0),
        ("adam", "rows", 3),
        ("recommender", "rows", 4),
        ("heads", "rows", 0),
    ],
)
def test_source_of_examples_follows_from_the_inputs(
    name: str, source: str, labels: int, request: pytest.FixtureRequest
) -> None:
    configured = request.getfixturevalue("configured")
    subject = Subject.random(configured(name) if name == "har_cnn" else request.getfixturevalue(name))
    assert (subject.source, len(subject.labels)) == (source, labels)
    assert not subject.real


@pytest.mark.parametrize(
    ("shape", "dtype", "source"),
    [
        ((8, 8, 1), "float32", "drawing"),
        ((64, 64, 1), "float32", "drawing"),
        ((65, 65, 1), "float32", "rows"),
        ((49, 10, 1), "float32", "rows"),  # coefficients of sounds
        ((8, 8, 3), "float32", "rows"),
        ((9, 128), "float32", "motion"),
        ((9, 128), "int32", "rows"),
    ],
)
def test_only_squares_of_one_channel_are_drawn(shape: tuple[int, ...], dtype: str, source: str) -> None:
    assert source_of(TensorInfo("x", (16, *shape), dtype)) == source


@pytest.mark.parametrize(("paper", "ink"), [(0.0, 1.0), (1.0, 0.0), (255.0, 0.0)])
def test_drawings_take_the_shades_of_real_pictures(paper: float, ink: float, softmax: TrainableModel) -> None:
    x = np.full((20, 8, 8, 1), paper, np.float32)
    x[:, 2:6, 3:5] = ink
    assert Subject.of(softmax, x, np.zeros(20, np.int32), "data mine").shades == (paper, ink)
    assert Subject.random(softmax).shades == (0.0, 1.0)
