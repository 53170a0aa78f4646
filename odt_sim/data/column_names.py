"""Names of table columns in settings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odt_sim._support.checks import braces_advice
from odt_sim.errors import ConfigurationError, DataError

Named = str | Sequence[str] | Mapping[str, Any]
"""A column, the columns of one array, or a mapping from the names of several arrays to their columns."""


def columns_of(named: Named) -> list[str]:
    """Return all columns in a name, a list of names, or a mapping to names or lists."""
    if isinstance(named, Mapping):
        return [column for each in named.values() for column in columns_of(each)]
    return [named] if isinstance(named, str) else [*named]


def check_known(where: str, columns: Sequence[str], known: Iterable[Any]) -> None:
    """Check that a table has the given columns.

    Args:
        where: The name of the table for errors, such as `data ratings.csv`.
        columns: The expected columns.
        known: All columns of the table.

    Raises:
        DataError: The table lacks one of them.
    """
    if missing := [column for column in columns if column not in known]:
        advice = braces_advice("data.KEY", missing[0])
        raise DataError(f"{where}: has no column {missing[0]!r}; found: {', '.join(map(str, known))}{advice}")


def check_not_empty(target: Named, features: Named) -> None:
    """Check that each target and each input has at least one column.

    Raises:
        ConfigurationError: A target or an input has no column.
    """
    for key, named, advice in (("target", target, "name one"), ("features", features, "null uses all numeric ones")):
        arrays = [*named.values()] if isinstance(named, Mapping) else [named]
        if not arrays or not all(map(columns_of, arrays)):
            raise ConfigurationError(f"data.{key}: expected at least one column, found {named}; {advice}")


def check_apart(target: Named, features: Named) -> None:
    """Check that the features do not contain the target.

    Raises:
        ConfigurationError: They contain it.
    """
    given = columns_of(features)
    if both := [column for column in columns_of(target) if column in given]:
        raise ConfigurationError(
            f"data.features: contains the target {both[0]!r}, which cannot be an input; leave it out, or for an "
            "autoencoder load the table by a function: data=function"
        )
