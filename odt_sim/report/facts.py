"""What a comparison was about, and what it found, in words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.persistence.run import Run
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import metric_name, score, significant
from odt_sim.report.values import Spread


def title(comparison: Comparison) -> str:
    """Returns the headline: how many strategies on how many devices."""
    strategies = list(dict.fromkeys(row.strategy for row in comparison.rows))
    if not strategies:
        return "No run was completed"
    what = strategies[0] if len(strategies) == 1 else f"{len(strategies)} strategies"
    return f"{what} on {_distinct(run.summary['devices'] for run in comparison.runs if run.summary)} devices"


def facts(comparison: Comparison) -> dict[str, str]:
    """Returns what was compared, by name; where runs differ all values are listed, and what is not known is left out."""
    runs = comparison.runs
    summaries = [run.summary for run in runs if run.summary]
    aggregators = _distinct(map(_aggregator, runs))
    found = {
        "data": _distinct(_group(run, "data") for run in runs),
        "partition": _distinct(_group(run, "partition") for run in runs),
        "model": _distinct(run.choices.get("model") for run in runs),
        "devices": _distinct(summary["devices"] for summary in summaries),
        "of these unseen": _distinct(summary["unseen"] for summary in summaries),
        "devices evaluated": _distinct(summary.get("evaluated") for summary in summaries if _is_sampled(summary)),
        "devices a round": _distinct(summary["cohort"] or "all seen" for summary in summaries),
        "rounds": _distinct(summary["rounds"] for summary in summaries),
        "local epochs": _distinct(_setting(run, "epochs") for run in runs if _setting(run, "steps") is None),
        "local steps": _distinct(_setting(run, "steps") for run in runs),
        "aggregator": "" if aggregators == "mean" else aggregators,
        "learning rate": _distinct(_setting(run, "learning_rate") for run in runs),
        "seeds": _distinct(sorted({summary["seed"] for summary in summaries})),
        "train / test examples": _distinct(f"{s['train_examples']:,} / {s['examples']:,}" for s in summaries),
    }
    return {name: value for name, value in found.items() if value}


def finding(comparison: Comparison) -> str:
    """Returns which configuration serves the fleet best, by how much, and at whose expense."""
    ranked = _ranked(comparison)
    if not ranked:
        return "There is nothing to compare."
    best, figure = ranked[0]
    metric = metric_name(comparison.metric)
    value = _score(figure.mean, comparison)
    if len(ranked) == 1:
        mean = f"The mean test {metric} of the seen devices is {value}, weighted by their examples."
        return f"{mean} {_worst(best, comparison)}"
    superlative = "highest" if HIGHER_IS_BETTER[comparison.metric] else "lowest"
    return (
        f"{best.label} has the {superlative} mean test {metric} of the seen devices, {value}, weighted by their examples; "
        f"{_runner_up(figure, *ranked[1], comparison)}. {_worst(best, comparison)}"
    )


def excluded(comparison: Comparison) -> str | None:
    """Returns how many updates were left out, and why, or None where all were used."""
    found = [_excluded(row) for row in comparison.rows]
    listed = ", ".join(told for told in found if told)
    return f"Updates that were left out: {listed}." if listed else None


def _excluded(row: Configuration) -> str | None:
    summaries = [run.summary for run in row.runs if run.summary]
    count = sum(summary["excluded"] for summary in summaries)
    reasons = Counter[str]()
    for summary in summaries:
        reasons.update(dict(summary.get("excluded_reasons", ())))
    listed = "; ".join(f"{reason}: {times}" for reason, times in reasons.items())
    away = sum(len(summary.get("quarantined", ())) for summary in summaries)
    quarantined = f", {away} devices quarantined" if away else ""
    return f"{count} of {row.label}{f' ({listed})' if listed else ''}{quarantined}" if count else None


def privacy(comparison: Comparison) -> str | None:
    """Returns which privacy runs give their users, or None where none promises any."""
    promised = {
        row.label: _distinct(f"epsilon {_epsilon(found)} at delta {found['delta']:g}" for found in known)
        for row in comparison.rows
        if (known := [run.summary["privacy"] for run in row.runs if run.summary and run.summary.get("privacy")])
    }
    if not promised:
        return None
    listed = "; ".join(f"{label}, {said}" for label, said in promised.items())
    return f"User-level differential privacy of what the server sends out: {listed}."


def adaptation_steps(comparison: Comparison) -> str:
    """Returns how many local steps an unseen device makes before its adapted figures; empty where that is not known."""
    return _distinct(_adaptation_steps(run) for run in comparison.runs)


def _ranked(comparison: Comparison) -> list[tuple[Configuration, Spread]]:
    """Returns the configurations by test figure; of a strategy's several only the one that validation examples chose."""
    candidates = [row for row in comparison.rows if row.choice.label in (None, row.label)]
    known = [(row, figure) for row in candidates if (figure := row.values["weighted_mean"])]
    return sorted(known, key=lambda pair: pair[1].mean, reverse=HIGHER_IS_BETTER[comparison.metric])


def _runner_up(best: Spread, second: Configuration, figure: Spread, comparison: Comparison) -> str:
    doubt = ""
    if best.std is not None and figure.std is not None and abs(best.mean - figure.mean) <= max(best.std, figure.std):
        doubt = ", a difference within one standard deviation over seeds"
    return f"{second.label} is next with {_score(figure.mean, comparison)}{doubt}"


def _worst(row: Configuration, comparison: Comparison) -> str:
    worst, hurt = row.values["worst"], row.values["hurt_local"]
    if worst is None:
        return ""
    sentence = f"Its worst-served device has {_score(worst.mean, comparison)}"
    if hurt is None:
        return f"{sentence}."
    share = f"{100 * hurt.mean:.1f}\N{NO-BREAK SPACE}%" if hurt.mean else "none"
    return f"{sentence}, and {share} of the devices would be better off training alone."


def _score(value: float, comparison: Comparison) -> str:
    return score(value, comparison.metric) + ("\N{NO-BREAK SPACE}%" if comparison.metric == "accuracy" else "")


def _epsilon(privacy: Mapping[str, Any]) -> str:
    return "infinite" if privacy["epsilon"] is None else significant(privacy["epsilon"])


def _is_sampled(summary: Mapping[str, Any]) -> bool:
    return bool(summary.get("evaluated", summary["devices"]) != summary["devices"])


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _group(run: Run, group: str) -> str | None:
    """Returns the chosen option of a Hydra group with its parameters, such as `dirichlet (alpha 0.3)`."""
    settings = run.config.get(group)
    parts = settings.items() if isinstance(settings, Mapping) else ()
    shown = [
        f"{key} {value}" for key, value in parts if not key.startswith("_") and isinstance(value, str | int | float)
    ]
    name = run.choices.get(group)
    return " ".join([name, *([f"({', '.join(shown)})"] if shown else [])]) if name else None


def _aggregator(run: Run) -> str | None:
    """Returns the aggregator with its settings, such as `krum (hostile 0.2, selected 1)`; None where it is not known."""
    settings = run.settings or {}
    own = [f"{key.removeprefix('aggregator.')} {settings[key]}" for key in settings if key.startswith("aggregator.")]
    name = settings.get("aggregator")
    return f"{name} ({', '.join(own)})" if name and own else name


def _adaptation_steps(run: Run) -> Any:
    fleet = run.config.get("fleet")
    return fleet.get("adaptation_steps") if isinstance(fleet, Mapping) else None


def _setting(run: Run, name: str) -> Any:
    settings = run.config.get("train")
    return settings.get(name) if isinstance(settings, Mapping) else None
