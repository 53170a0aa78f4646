"""Checks of the results of experiments."""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from odt_sim._support.text import few
from odt_sim.doctor import findings as kinds
from odt_sim.doctor.file_checks import Roles
from odt_sim.doctor.findings import Finding, Kind
from odt_sim.doctor.trial import Trial

SAME = 1e-3
"""The largest difference between two outputs that rounding explains, relative to the largest output."""

LOSSES: Mapping[str, Kind] = {
    "sum": kinds.SUMMED,
    "running_mean": kinds.RUNNING_MEAN,
    "after_step": kinds.AFTER_STEP,
    "swapped": kinds.SWAPPED,
    "unknown": kinds.UNEXPLAINED,
}

MOST = 8


def check_trial(trial: Trial, roles: Roles, frozen: Set[str]) -> Iterator[Finding]:
    """Yield the findings of the experiments.

    Args:
        trial: The results.
        roles: The file's own signatures by role.
        frozen: The weights that no step should change.
    """
    for experiment, reason in trial.deaths.items():
        yield Finding(kinds.CRASH, experiment, reason)
    if "load" in trial.errors:
        yield Finding(kinds.UNLOADABLE, "", trial.errors["load"])
        return
    train, infer = (roles[role]["name"] if role in roles else role for role in ("train", "infer"))
    failures = trial.result("declared") or {}
    for role, reason in failures.items():
        yield Finding(kinds.SIGNATURE_FAILS, roles[role]["name"] if role in roles else role, reason)
    if result := trial.result("loss"):
        yield from _loss(result, train)
    if result := trial.result("step"):
        yield from _step(result, train, frozen)
    if result := trial.result("mode"):
        yield from _mode(result, infer)
    if not failures:  # otherwise, experiments fail because the signatures that they call do
        errors = {error: experiment for experiment, error in reversed(trial.errors.items())}
        for error, experiment in errors.items():
            yield Finding(kinds.SIGNATURE_FAILS, experiment, error)


def _loss(result: Mapping[str, Any], train: str) -> Iterator[Finding]:
    if not result["finite"]:
        yield Finding(kinds.LOSS_NOT_FINITE, train, "a step returned NaN or infinity")
    elif result["relation"] in LOSSES:
        returned = f"returned {', '.join(f'{loss:.4g}' for loss in result['returned'])}"
        known = loss_text(result["loss"], result["from_logits"])
        yield Finding(LOSSES[result["relation"]], train, f"compared with {known}" if known else returned)


def loss_text(loss: str | None, from_logits: bool) -> str:
    """Return the description of a loss; empty if it is unknown."""
    if "crossentropy" not in (loss or ""):
        return loss or ""
    return f"{loss} of {'logits' if from_logits else 'probabilities'}"


def _step(result: Mapping[str, Any], train: str, frozen: Set[str]) -> Iterator[Finding]:
    if result["not_finite"]:
        yield Finding(kinds.DIVERGES, train, few(result["not_finite"], MOST))
    elif result["weights"] and len(result["unchanged"]) == result["weights"]:
        yield Finding(kinds.NO_CHANGE, train, f"none of {result['weights']} weights changed in 5 steps")
    elif unchanged := [name for name in result["unchanged"] if name not in frozen]:
        yield Finding(kinds.PARTIAL_CHANGE, train, few(unchanged, MOST))


def _mode(result: Mapping[str, Any], infer: str) -> Iterator[Finding]:
    if result["random"] > SAME:
        yield Finding(kinds.RANDOM_INFERENCE, infer, f"outputs of the same rows differ by {result['random']:.1%}")
    elif result["dependent"] > SAME:
        yield Finding(
            kinds.BATCH_DEPENDENT, infer, f"a row's outputs differ by {result['dependent']:.1%} next to other rows"
        )
    if result["changed"]:
        yield Finding(kinds.INFERENCE_TRAINS, infer, few(result["changed"], MOST))
