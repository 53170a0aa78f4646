"""The columns of tables that settings name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odt_sim.declarations import braces_advice
from odt_sim.errors import ConfigurationError, DataError

Named = str | Sequence[str] | Mapping[str, Any]
"""A column, columns of one array, or by name those of several arrays."""


def columns_of(named: Named) -> list[str]:
    """Return the columns of a name, of a list of names, or of a mapping to them."""
    if isinstance(named, Mapping):
        return [column for each in named.values() for column in columns_of(each)]
    return [named] if isinstance(named, str) else [*named]


def check_known(where: str, columns: Sequence[str], known: Iterable[Any]) -> None:
    """Check that a table has some columns.

    Args:
        where: Its name for errors, such as `data ratings.csv`.
        columns: The columns.
        known: All columns of the table.

    Raises:
        DataError: It lacks one.
    """
    if missing := [column for column in columns if column not in known]:
        advice = braces_advice("data.KEY", missing[0])
        raise DataError(f"{where}: has no column {missing[0]!r}; there are: {', '.join(map(str, known))}{advice}")


def check_not_empty(target: Named, features: Named) -> None:
    """Check that each target and each input has at least one column.

    Raises:
        ConfigurationError: One has none.
    """
    for key, named, advice in (("target", target, "name one"), ("features", features, "null takes all numeric ones")):
        arrays = [*named.values()] if isinstance(named, Mapping) else [named]
        if not arrays or not all(map(columns_of, arrays)):
            raise ConfigurationError(f"data.{key}: expected at least one column, found {named}; {advice}")


def check_apart(target: Named, features: Named) -> None:
    """Check that the target is none of the features.

    Raises:
        ConfigurationError: It is one.
    """
    given = columns_of(features)
    if both := [column for column in columns_of(target) if column in given]:
        raise ConfigurationError(
            f"data.features: contains the target {both[0]!r}, which must not be an input; leave it out"
        )
