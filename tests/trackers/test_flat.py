"""Flat settings, and the numbers of records."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from odt_sim.declarations import flatten
from odt_sim.errors import ConfigurationError
from odt_sim.trackers.base import round_figures, settings_of, summary_figures

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)
keys = st.text("ab", min_size=1, max_size=2)
nested = st.dictionaries(
    keys, leaves | st.dictionaries(keys, leaves | st.dictionaries(keys, leaves, max_size=2), max_size=3), max_size=3
)


def test_flatten_joins_the_keys() -> None:
    config = {"seed": 0, "run": {"rounds": 3, "resume": None}, "model": {"build": {"filters": [16, 32]}}, "tracker": {}}
    assert flatten(config) == {"seed": 0, "run.rounds": 3, "run.resume": None, "model.build.filters": [16, 32]}
    assert flatten({"a": {"b": 1}}, "/") == {"a/b": 1}


@given(nested)
def test_flat_keys_lead_to_their_values(config: dict[str, Any]) -> None:
    for key, value in flatten(config).items():
        found: Any = config
        for part in key.split("."):
            found = found[part]
        assert found is value
        assert not isinstance(value, dict)


def test_only_finite_numbers_are_figures() -> None:
    record = {
        **{"round": 7, "strategy": "fedavg", "devices": np.int64(4), "excluded_devices": [1, 2], "loss": math.nan},
        **{"mse": math.inf, "train_loss": None, "seen": True, "accuracy": np.float32(0.5)},
    }
    assert round_figures(record) == {"devices": 4.0, "accuracy": 0.5}


def test_figures_of_a_summary_keep_their_groups() -> None:
    summary = {"strategy": "local", "rounds": 2, "metrics": {"accuracy": {"mean": 0.5}, "loss": None}}
    assert summary_figures(summary) == {"summary/rounds": 2.0, "summary/metrics/accuracy/mean": 0.5}


def test_settings_are_resolved_without_those_of_the_tracker() -> None:
    config = OmegaConf.create(
        {"seed": 3, "model": {"seed": "${seed}"}, "tracker": {"uri": "http://user:password@host"}}
    )
    assert settings_of(config) == {"seed": 3, "model.seed": 3}


def test_setting_that_refers_to_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^model\.seed: Interpolation key 'sede' not found; correct it$"):
        settings_of(OmegaConf.create({"seed": 3, "model": {"seed": "${sede}"}}))
