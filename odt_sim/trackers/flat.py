"""The numbers and settings for trackers, from nested records and configurations."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from odt_sim.declarations import flatten
from odt_sim.errors import ConfigurationError


def settings_of(config: DictConfig) -> dict[str, Any]:
    """Return a configuration's values by dotted key, without the tracker's: an address may contain a password.

    Raises:
        ConfigurationError: A value refers to a missing key.
    """
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigurationError(f"{error.full_key}: {str(error).splitlines()[0]}; correct it") from error
    assert isinstance(resolved, dict)
    return flatten({str(key): value for key, value in resolved.items() if key != "tracker"})


def round_figures(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in a round's record, without the round's number."""
    return {key: value for key, value in _numbers(record).items() if key != "round"}


def summary_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in a summary by key, such as `summary/metrics/accuracy/mean`."""
    return _numbers({"summary": summary})


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    numbers = {key: float(value) for key, value in flatten(record, "/").items() if _is_number(value)}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
