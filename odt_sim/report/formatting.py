"""Figures as text, the same in the terminal and on the page."""

from odt_sim.report.values import Spread

UNKNOWN = "–"
MINUS = "\N{MINUS SIGN}"

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


def cell(spread: Spread | None, unit: str) -> tuple[str, str]:
    """Returns the text of a figure in the unit of its column, and of its deviation over seeds (empty where there is none)."""
    if spread is None:
        return UNKNOWN, ""
    value = _value(spread, unit)
    return value, f"±{_like(value, (100 if unit == 'percent' else 1) * spread.std)}" if spread.std else ""


def _value(spread: Spread, unit: str) -> str:
    if unit == "percent":
        return f"{100 * spread.mean:.1f}"
    return _counted(spread) if unit == "count" else significant(spread.mean)


def signed(difference: float | None, metric: str) -> str:
    """Returns a difference of a metric with its sign: of an accuracy in percentage points."""
    if difference is None:
        return UNKNOWN
    text = score(abs(difference), metric)
    return f"{'' if not float(text.replace(',', '')) else '+' if difference > 0 else MINUS}{text}"


def signed_range(ends: tuple[float, float] | None, metric: str) -> str:
    """Returns an interval of differences, as `signed` writes them."""
    return UNKNOWN if ends is None else f"{signed(ends[0], metric)} to {signed(ends[1], metric)}"


def probability(p: float | None) -> str:
    """Returns a p value with three decimals, those too small for it as a bound."""
    if p is None:
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _counted(spread: Spread) -> str:
    """Returns a mean of whole numbers: with a decimal where it is small and no whole number itself."""
    whole = spread.mean >= 100 or (spread.mean.is_integer() and not spread.std)
    return f"{spread.mean:,.0f}" if whole else f"{spread.mean:.1f}"


def _like(text: str, value: float) -> str:
    """Returns a value with as many decimals as a text has."""
    return f"{value:.1e}" if "e" in text else f"{value:,.{len(text.partition('.')[2])}f}"
