"""Names of metrics: their direction, their form in reports, and their names in Keras."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odt_sim.errors import ModelError


class Kind(NamedTuple):
    """A kind of metric.

    Attributes:
        higher_is_better: Whether a larger value is better.
        percent: Whether reports write it, a fraction from 0 to 1, in percent.
        title: The name in a sentence; None for the name itself, with spaces.
        bounded: Whether it is at most 1.
    """

    higher_is_better: bool
    percent: bool = False
    title: str | None = None
    bounded: bool = True


_ERROR = Kind(higher_is_better=False, bounded=False)

KINDS: Mapping[str, Kind] = {
    "accuracy": Kind(True, percent=True),
    "loss": _ERROR,
    "balanced_accuracy": Kind(True, percent=True),
    "auc": Kind(True, title="AUC"),
    "mse": _ERROR._replace(title="MSE"),
    "mae": _ERROR._replace(title="MAE"),
    "r2": Kind(True, title="R²"),
    "perplexity": _ERROR,
    "iou": Kind(True, percent=True, title="IoU"),
    "micro_f1": Kind(True, title="micro F1"),
    "macro_f1": Kind(True, title="macro F1"),
    "exact_match": Kind(True, percent=True),
    "precision": Kind(True),
    "recall": Kind(True),
    "hit_rate": Kind(True, percent=True),
    "ndcg": Kind(True, title="NDCG"),
    "top": Kind(True, percent=True),
    "rmse": _ERROR._replace(title="RMSE"),
    "mape": _ERROR._replace(title="MAPE"),
    "msle": _ERROR._replace(title="MSLE"),
    "log_cosh": _ERROR,
    "cosine": Kind(True, title="cosine similarity"),
    "token_error_rate": Kind(False, percent=True, bounded=False),
}
"""Kinds of metrics by the beginning of a metric's name, as in `ndcg_at_10`, `accuracy_digit` or `mae_0`."""

_OWN: dict[str, Kind] = {}  # user-defined metrics registered in this process

_KERAS = {  # our names of Keras' metrics
    **dict.fromkeys(("acc", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy"), "accuracy"),
    **dict.fromkeys(("top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy"), "top_5"),
    **dict.fromkeys(("mean_io_u", "one_hot_mean_io_u", "one_hot_io_u", "io_u", "binary_io_u", "mean_iou"), "iou"),
    **dict.fromkeys(("f1", "f1_score"), "macro_f1"),
    "mean_squared_error": "mse",
    "mean_absolute_error": "mae",
    "root_mean_squared_error": "rmse",
    "mean_absolute_percentage_error": "mape",
    "mean_squared_logarithmic_error": "msle",
    "logcosh": "log_cosh",
    "log_cosh_error": "log_cosh",
    "cosine_similarity": "cosine",
    "r2_score": "r2",
    "hit_rate": "hit_rate_at_10",
    "ndcg": "ndcg_at_10",
}
_NUMBERED = re.compile(r"(top_|hit_rate_at_|ndcg_at_)[1-9]\d*")
_UNNUMBERED = {*KINDS} - {"top", "hit_rate", "ndcg"}


def canonical(name: str) -> str:
    """Return odt_sim's name of a manifest's metric: `MeanSquaredError`, `mean_squared_error` and `mse` give `mse`.

    Raises:
        ModelError: odt_sim does not compute the metric.
    """
    plain = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()
    unique = re.sub(r"_\d+$", "", plain)  # Keras numbers further metrics of a kind, as in `precision_1`
    found = next((_KERAS.get(own, own) for own in (plain, unique) if _is_known(_KERAS.get(own, own))), None)
    if found is None:
        known = ", ".join(sorted({*_UNNUMBERED, *_KERAS, "top_<k>", "hit_rate_at_<k>", "ndcg_at_<k>"}))
        raise ModelError(f"metric {name!r}: expected one of {known}; leave it out, or compute it from the records")
    return found


def _is_known(name: str) -> bool:
    return name in _UNNUMBERED or _NUMBERED.fullmatch(name) is not None


def parted(metric: str) -> tuple[str, int | None]:
    """Split a metric into name and number: `hit_rate` and 10 for `hit_rate_at_10`, `mae` and 0 for `mae_0`."""
    match = re.fullmatch(r"(.+?)(?:_at)?_(\d+)", metric)
    return (match[1], int(match[2])) if match else (metric, None)


def kind_of(metric: str) -> Kind:
    """Return the kind of a metric of a run, such as `accuracy`, `ndcg_at_10`, or `accuracy_digit` of the output `digit`."""
    return _OWN[metric] if metric in _OWN else KINDS[_base(metric) or metric]


def is_metric(column: str) -> bool:
    """Return whether a column of a record has a metric's name."""
    return column in _OWN or _base(column) is not None


def is_own(name: str) -> bool:
    """Return whether a name belongs to a user-defined metric."""
    return name in _OWN


def know(directions: Mapping[str, bool]) -> None:
    """Register user-defined metrics for reports in this process, with whether a larger value is better."""
    _OWN.update({name: Kind(higher, bounded=False) for name, higher in directions.items()})


def _base(metric: str) -> str | None:
    return max((name for name in KINDS if metric == name or metric.startswith(f"{name}_")), key=len, default=None)


def title_of(metric: str) -> str:
    """Return a metric's name for a sentence: `MSE`, `NDCG at 10`, `top 5 accuracy`, `MAE of target 0`, `accuracy of age`."""
    base = None if metric in _OWN else _base(metric)
    if base is None:
        return metric.replace("_", " ")
    name, rest = KINDS[base].title or base.replace("_", " "), metric[len(base) + 1 :]
    if number := re.match(r"(at_)?(\d+)(?:_|$)", rest):
        rest, at = rest[number.end() :], number[1]
        end = f"at {number[2]}" if at else f"of target {number[2]}"
        name = f"{base} {number[2]} accuracy" if base == "top" else f"{name} {end}"
    return f"{name} of {rest}" if rest else name


def is_percent(metric: str) -> bool:
    """Return whether reports show a metric in percent."""
    return is_metric(metric) and kind_of(metric).percent


def higher_is_better(metric: str) -> bool:
    """Return whether a larger value of a metric is better."""
    return kind_of(metric).higher_is_better


def is_period(column: str, metric: str) -> bool:
    """Return whether a column contains a metric on the examples of one period."""
    return re.fullmatch(rf"period_\d+_{re.escape(metric)}", column) is not None


def period_of(column: str) -> int:
    """Return the period of a column for which `is_period` is true, from 1."""
    return int(column.split("_")[1])


def first_metric(columns: Iterable[str], prefix: str = "") -> str | None:
    """Return the first metric among columns `<prefix><metric>`, which is used to compare runs; None without one."""
    named = (column.removeprefix(prefix) for column in columns if column.startswith(prefix))
    return next((name for name in named if is_metric(name)), None)
