"""The search space, in Hydra's syntax: choice(), range(), interval(), tag(log, interval())."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override

from odt_sim.errors import ConfigurationError


@dataclass(frozen=True)
class Choice:
    """A choice among several values.

    Attributes:
        values: The values as written in an override, at least one.
    """

    values: tuple[str, ...]

    def written(self, drawn: str) -> str:
        """Return a drawn value as written in an override."""
        return drawn


@dataclass(frozen=True)
class Interval:
    """A number between two inclusive bounds.

    Attributes:
        low: Lower bound.
        high: Upper bound, above the lower bound.
        whole: Whether the number is whole.
        log: Whether the number is drawn uniformly on a logarithmic scale; the lower bound is then above 0.
    """

    low: float
    high: float
    whole: bool
    log: bool

    def written(self, drawn: float) -> str:
        """Return a drawn number as written in an override, with four significant digits."""
        return str(int(drawn) if self.whole else min(max(float(f"{drawn:.4g}"), self.low), self.high))


Space = Mapping[str, Choice | Interval]
"""The search space: a dimension for each searched key."""


DATA_KEYS = ("seed", "data", "data.seed", "data.path", "fleet.devices", "fleet.unseen", "fleet.evaluated")
DATA_GROUPS = ("partition", "drift", "arrival", "split")
"""The settings that determine the devices and their examples: single keys, and groups with all of their settings."""


def check_searched(keys: Iterable[str]) -> None:
    """Check that a search does not change the devices and their examples, because figures would not compare.

    Args:
        keys: The keys that a search draws.

    Raises:
        ConfigurationError: A key determines which examples devices have.
    """
    for key in (each.lstrip("+") for each in keys):
        if key in DATA_KEYS or key.split(".")[0] in DATA_GROUPS:
            advice = "odt-sim tune runs the winner with several seeds" if key == "seed" else "search once for each"
            raise ConfigurationError(
                f"{key}: expected one value, since a search over several would favour the easiest examples; {advice}"
            )


def parsed_space(arguments: Sequence[str], loader: ConfigLoader | None = None) -> tuple[Space, list[str]]:
    """Return the search space of overrides, and the overrides that all trials share; the last override of a key is used.

    Args:
        arguments: Overrides in Hydra's syntax.
        loader: Lists the options of a group for `glob()`.

    Raises:
        ConfigurationError: An interval is empty, or logarithmic from 0 or below, or a key determines the examples.
    """
    overrides = OverridesParser.create(loader).parse_overrides(list(arguments))
    last = {override.get_key_element(): override for override in overrides}
    space = {key: _dimension(key, override, loader) for key, override in last.items() if override.is_sweep_override()}
    check_searched(space)
    fixed = {key: override for key, override in last.items() if key not in space}
    return space, [f"{key}={override.get_value_element_as_str()}" for key, override in fixed.items()]


def first_values(space: Space) -> list[str]:
    """Return overrides with the first value, or the lower bound, of each key of a space."""
    return [f"{key}={each.values[0] if isinstance(each, Choice) else each.low}" for key, each in space.items()]


def _dimension(key: str, override: Override, loader: ConfigLoader | None) -> Choice | Interval:
    if override.is_discrete_sweep():
        return Choice(tuple(map(str, override.sweep_string_iterator())))
    sweep = override.value()
    assert isinstance(sweep, IntervalSweep)
    low, high, log = sweep.start, sweep.end, "log" in sweep.tags
    if low is None or high is None or not low < high:
        raise ConfigurationError(f"{key}: expected an interval from a lower to a higher number, found {low} to {high}")
    if log and low <= 0:
        raise ConfigurationError(f"{key}: expected an interval above 0 for tag(log, ...), found {low} to {high}")
    return Interval(low, high, isinstance(low, int) and isinstance(high, int), log)
