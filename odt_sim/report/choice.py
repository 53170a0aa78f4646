"""Which configuration of a strategy is chosen, where there are several: by validation examples only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.persistence.run import Run
from odt_sim.report.conditions import same_conditions, same_data


@dataclass(frozen=True)
class Choice:
    """Which of its strategy's configurations validates best, as each of them knows it.

    Attributes:
        label: That configuration's label; None where no candidate has a validation figure.
        candidates: How many configurations there were to choose from.
    """

    label: str | None
    candidates: int


def choices(groups: Mapping[str, Sequence[Run]]) -> dict[str, Choice]:
    """Returns for each configuration the choice that it was a candidate of.

    Configurations are candidates of one choice where strategy and conditions are equal: one does not choose the partition
    on which a strategy does best. Their validation figure is the mean over seeds of the mean over the seen devices. One
    that has fewer seeds, or fewer devices with a finite figure, comes after one that has more: what failed or diverged
    must not win by what is left of it. Of equals the first is chosen; test examples have no say.

    Args:
        groups: For each configuration's label its complete runs, one a seed.
    """
    candidates: dict[object, list[list[str]]] = {}
    for label, runs in groups.items():
        alike = candidates.setdefault((runs[0].name, *same_conditions(runs[0])), [])
        on_it = (labels for labels in alike if all(same_data(groups[other], runs) for other in labels))
        if (labels := next(on_it, None)) is None:
            alike.append(labels := [])
        labels.append(label)
    made = [(labels, Choice(_best(labels, groups), len(labels))) for alike in candidates.values() for labels in alike]
    return {label: choice for labels, choice in made for label in labels}


def only_chosen(groups: Mapping[str, list[Run]]) -> dict[str, list[Run]]:
    """Returns the configurations that were chosen.

    Raises:
        ConfigurationError: A strategy has several configurations, and none of them a validation figure.
    """
    made = choices(groups)
    for label, choice in made.items():
        if choice.label is None:
            raise ConfigurationError(
                f"--best: none of the {choice.candidates} configurations of {groups[label][0].name} has figures on "
                "validation examples to choose by; run them again with split.validation above 0"
            )
    return {label: runs for label, runs in groups.items() if made[label].label == label}


def _best(labels: Sequence[str], groups: Mapping[str, Sequence[Run]]) -> str | None:
    if len(labels) == 1:
        return labels[0]
    ranks = {label: rank for label in labels if (rank := _rank(groups[label])) is not None}
    return max(ranks, key=lambda label: ranks[label], default=None)


def _rank(runs: Sequence[Run]) -> tuple[int, int, float] | None:
    """Returns what is largest of the configuration to choose: its seeds, its devices, its validation figure."""
    metric = runs[0].metrics[0]
    known = [figures for run in runs if (figures := (run.complete.get("metrics_validation") or {}).get(metric))]
    if not known:
        return None
    mean = float(np.mean([figures["weighted_mean"] for figures in known]))
    devices = sum(figures["devices"] for figures in known)
    return len(known), devices, mean if HIGHER_IS_BETTER[metric] else -mean
