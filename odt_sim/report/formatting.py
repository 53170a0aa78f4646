"""Figures as text, the same in the terminal and on the page."""

from odt_sim.report.comparison import Column, Spread

UNKNOWN = "–"

PERCENT = ("accuracy", "balanced_accuracy")
"""The metrics that are written in percent."""

_NAMES = {"mse": "MSE", "mae": "MAE", "auc": "AUC", "r2": "R²"}


def score(value: float | None, metric: str) -> str:
    """Returns a metric's value: an accuracy in percent with one decimal, anything else with three significant digits."""
    if value is None:
        return UNKNOWN
    return f"{100 * value:.1f}" if metric in PERCENT else significant(value)


def significant(value: float) -> str:
    """Returns a number with three significant digits, or all digits before the decimal point."""
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def metric_name(metric: str) -> str:
    """Returns a metric's name as it is written in a sentence."""
    return _NAMES.get(metric, metric.replace("_", " "))


def cell(spread: Spread | None, column: Column, metric: str) -> tuple[str, str]:
    """Returns the text of a cell, and of its deviation over seeds (empty for one seed)."""
    if spread is None:
        return UNKNOWN, ""
    percent = column.kind == "fraction" or (column.kind == "score" and metric == "accuracy")
    factor = 100 if percent else 1
    value = f"{100 * spread.mean:.1f}" if percent else significant(spread.mean)
    return value, "" if spread.std is None else f"±{_like(value, factor * spread.std)}"


def _like(text: str, value: float) -> str:
    """Returns a value with as many decimals as a text has."""
    return f"{value:.1e}" if "e" in text else f"{value:,.{len(text.partition('.')[2])}f}"
