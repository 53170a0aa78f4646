"""Calibration: its measurements, and where they are stored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from odt_sim import TrainableModel
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.fleet import calibration
from odt_sim.fleet.calibration import CALIBRATION, Calibration, calibrated, measured
from odt_sim.fleet.calibration_process import _line
from tests.fleet.conftest import CALIBRATION as KNOWN


def test_every_signature_of_a_file_is_timed(softmax: TrainableModel) -> None:
    found = measured(softmax)
    assert found.fingerprint == softmax.fingerprint
    assert set(found.calls) == set(softmax.signatures)
    train = found.calls["train"]
    assert (train.rows, train.per_row) == (16, 0)
    assert 1e-6 < train.per_call < 0.1
    assert len(softmax.content) < found.memory_bytes < 200e6


def test_rows_count_in_a_file_that_takes_any_number(any_rows: TrainableModel) -> None:
    train = measured(any_rows).calls["train"]
    assert train.rows == any_rows.batch_size
    assert train.per_call + 32 * train.per_row > 0


def test_line_through_times_of_different_batches() -> None:
    rows = np.array([4.0, 16, 32])
    assert_allclose(_line(rows, 0.5 + 0.25 * rows), (0.5, 0.25))
    assert _line(rows, 1 / rows)[1] == 0  # never negative
    assert_allclose(_line(rows, rows - 3), (-3, 1))


def test_seconds_of_calls_and_rows() -> None:
    calls = np.array([2, 0])
    assert_allclose(KNOWN.seconds("train", calls), [0.004, 0])
    assert_allclose(KNOWN.seconds("infer", calls), [2 * (0.0005 + 0.0016), 0])
    assert_allclose(KNOWN.seconds("infer", calls, np.array([20, 0])), [0.001 + 0.002, 0])


def test_calibration_is_taken_from_the_run_then_the_cache_and_measured_once(
    softmax: TrainableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    measurements = []

    def measure(model: TrainableModel) -> Calibration:
        measurements.append(replace(KNOWN, fingerprint=model.fingerprint, memory_bytes=len(measurements)))
        return measurements[-1]

    monkeypatch.setattr(calibration, "measured", measure)
    first = calibrated(softmax)
    assert calibrated(softmax, tmp_path) == first
    own = replace(first, memory_bytes=77)
    (tmp_path / CALIBRATION).write_text(own.to_json())
    assert calibrated(softmax, tmp_path) == own
    given = replace(first, memory_bytes=99)
    (tmp_path / "other.json").write_text(given.to_json())
    assert calibrated(softmax, tmp_path, tmp_path / "other.json") == given
    assert len(measurements) == 1
    assert len({first.digest, own.digest, given.digest}) == 3


def test_file_that_is_no_calibration_of_the_model_is_refused(softmax: TrainableModel, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(KNOWN.to_json())
    with pytest.raises(ConfigurationError, match="measured a file with fingerprint ffffffffffff, expected "):
        Calibration.read(path, softmax)
    known = KNOWN.to_json()
    for text, reason in {
        "{}": "no key 'format_version'",
        "[]": "not a JSON object",
        "no": "Expecting value",
        known.replace("0.002", "-1"): "a time is negative or infinite",
        known.replace(": 1,", ": 9,"): "format version 9",
    }.items():
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=rf"not a calibration of version 1 \({reason}"):
            Calibration.read(path, softmax)
    with pytest.raises(ConfigurationError, match="cannot read the calibration"):
        Calibration.read(tmp_path / "none.json", softmax)


def test_file_that_litert_cannot_run_is_refused(softmax: TrainableModel) -> None:
    broken = replace(softmax, content=softmax.content[:100])
    with pytest.raises(ModelError, match="cannot be measured"):
        measured(broken)
