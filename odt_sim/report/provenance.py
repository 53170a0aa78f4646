"""The provenance of runs: differences in data, model, versions and machine between the runs of a comparison."""

from collections.abc import Collection, Mapping, Sequence

from odt_sim._support.text import few
from odt_sim.persistence.run import Run
from odt_sim.report.comparison import Comparison
from odt_sim.report.run_settings import data_digest, data_settings

NOT_RECORDED = "not recorded"
MOST_NAMED = 3  # configurations that a value lists

_VERSIONS = ("odt_sim", "ai-edge-litert", "runtime", "numpy", "Python")
_WITH_SEED = " with seed "
_MACHINE = ("platform", "processor")


def differences(comparison: Comparison) -> list[str]:
    """Return the differences between the runs in words: data, split, model, code, versions, platform and processor.

    The content of the data and its split are compared between runs of the same seed, because they may depend on it.
    """
    facts = [(row.label, _facts(run)) for row in comparison.rows for run in row.runs]
    listed: dict[str, str] = {}
    for name in dict.fromkeys(name for _, of_run in facts for name in of_run):
        labels: dict[str, dict[str, None]] = {}  # in order, by value
        for label, of_run in facts:
            if name in of_run:
                labels.setdefault(of_run[name], {})[label] = None
        if len(labels) > 1:
            listed.setdefault(name.partition(_WITH_SEED)[0], f"{name}: {_by_value(labels)}")  # one seed is enough
    return [*listed.values()]


def _by_value(labels: Mapping[str, Collection[str]]) -> str:
    """Return values with the configurations that have them; the largest group is `all others` if it is too large."""
    most = max(labels.values(), key=len)
    return "; ".join(
        f"{value} ({'all others' if group is most and len(group) > MOST_NAMED else few([*group], MOST_NAMED)})"
        for value, group in labels.items()
    )


def versions(runs: Sequence[Run]) -> str:
    """Return the versions behind runs in words; differing versions are listed."""
    names = [name for name in _VERSIONS if name != "runtime"]  # a separate setting
    return "; ".join(dict.fromkeys(_in_words(run, names) for run in runs))


def machines(runs: Sequence[Run]) -> str:
    """Return the platforms and processors behind runs in words."""
    return "; ".join(dict.fromkeys(_in_words(run, _MACHINE, named=False) for run in runs))


def _in_words(run: Run, names: Sequence[str], *, named: bool = True) -> str:
    recorded = run.complete.environment or {}
    return ", ".join(f"{name} {recorded[name]}" if named else recorded[name] for name in names if name in recorded)


def _facts(run: Run) -> dict[str, str]:
    """Return the facts on a run's provenance, by name."""
    settings, summary = run.settings, run.complete
    data = {name: value for name, value in data_settings(run).items() if name != "data.digest"}
    named = {group: str(settings.get(group) or run.choices.get(group, NOT_RECORDED)) for group in ("data", "model")}
    environment = summary.environment or {}
    return {
        **{"data": named["data"], **data},
        f"data content{_WITH_SEED}{summary.seed}": (data_digest(run) or NOT_RECORDED)[:12],
        f"data split{_WITH_SEED}{summary.seed}": (summary.split_digest or NOT_RECORDED)[:12],
        "model": named["model"],
        "odt_sim code": environment.get("code", NOT_RECORDED),
        **{name: environment.get(name, NOT_RECORDED) for name in (*_VERSIONS, *_MACHINE)},
    }
