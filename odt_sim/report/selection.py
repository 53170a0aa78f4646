"""Selection among a strategy's configurations, on validation examples only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.names import higher_is_better
from odt_sim.persistence.run import Run
from odt_sim.report.run_settings import data_key, same_data


@dataclass(frozen=True)
class Selection:
    """The selection among a strategy's configurations on the same data.

    Attributes:
        label: The configuration that validates best; None if no candidate has a validation figure.
        candidates: The number of configurations to select from.
    """

    label: str | None
    candidates: int


def select(groups: Mapping[str, Sequence[Run]]) -> dict[str, Selection]:
    """Return the selection in which each configuration was a candidate, by label.

    Candidates share strategy and data. They are ranked by their mean validation figure over seeds and seen devices.
    More seeds come before fewer, and more devices with a finite figure before fewer, so that a partly failed or
    diverged configuration cannot win. Configurations that a search's pruner ended come last. The first of equals wins.

    Args:
        groups: The complete runs of each configuration, one per seed, by label.
    """
    candidates: dict[object, list[list[str]]] = {}
    for label, runs in groups.items():
        by_data = candidates.setdefault((runs[0].name, *data_key(runs[0])), [])
        matching = (labels for labels in by_data if all(same_data(groups[other], runs) for other in labels))
        if (labels := next(matching, None)) is None:
            by_data.append(labels := [])
        labels.append(label)
    selections = [
        (labels, Selection(_best(labels, groups), len(labels))) for by_data in candidates.values() for labels in by_data
    ]
    return {label: selection for labels, selection in selections for label in labels}


def selected_only(groups: Mapping[str, list[Run]]) -> dict[str, list[Run]]:
    """Return the selected configurations.

    Raises:
        ConfigurationError: A strategy has several configurations, and none has a validation figure.
    """
    selections = select(groups)
    for label, selection in selections.items():
        if selection.label is None:
            raise ConfigurationError(
                f"--best: none of the {selection.candidates} configurations of {groups[label][0].name} has "
                "validation metrics to choose by; run them again with split.validation above 0"
            )
    return {label: runs for label, runs in groups.items() if selections[label].label == label}


def _best(labels: Sequence[str], groups: Mapping[str, Sequence[Run]]) -> str | None:
    if len(labels) == 1:
        return labels[0]
    ranks = {label: rank for label in labels if (rank := _rank(groups[label])) is not None}
    return max(ranks, key=lambda label: ranks[label], default=None)


def _rank(runs: Sequence[Run]) -> tuple[bool, int, int, float] | None:
    """Return the rank: whether no run was pruned, the seeds, the devices, and the figure; None without a figure."""
    metric = runs[0].metrics[0]
    known = [figures for run in runs if (figures := (run.complete.metrics_validation or {}).get(metric))]
    if not known:
        return None
    mean = float(np.mean([figures["weighted_mean"] for figures in known]))
    devices = sum(figures["devices"] for figures in known)
    whole = not any(run.pruned for run in runs)
    return whole, len(known), devices, mean if higher_is_better(metric) else -mean
