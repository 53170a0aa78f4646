"""Checks of the results of experiments."""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from odt_sim._support.text import few
from odt_sim.doctor import findings as kinds
from odt_sim.doctor.file_checks import needed_signatures
from odt_sim.doctor.findings import Finding, Kind
from odt_sim.doctor.subject import Roles
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


def check_trial(trial: Trial, roles: Roles, names: Mapping[str, str], frozen: Set[str]) -> Iterator[Finding]:
    """Yield the findings of the experiments.

    Args:
        trial: The results.
        roles: The file's signatures by role.
        names: The variable behind each output of the reading signature.
        frozen: The outputs that no step should change.
    """
    for experiment, reason in trial.deaths.items():
        yield Finding(kinds.CRASH, experiment, reason)
    if "load" in trial.errors:
        yield Finding(kinds.UNLOADABLE, "", trial.errors["load"])
        return
    declared = trial.result("declared") or {}
    failing = []
    for role, signature in roles.items():
        if not declared.get(role) or signature["name"] not in needed_signatures(roles):
            continue
        if role == "train" and "y" in declared:
            shape = ", ".join("?" if size < 0 else str(size) for size in declared["y"])
            found = f"{signature.get('y', 'y')} works as [{shape}], not as declared ({declared[role]})"
            yield Finding(kinds.WRONG_SHAPE, signature["name"], found)
        else:
            failing.append(role)
            yield Finding(kinds.SIGNATURE_FAILS, signature["name"], declared[role])
    yield from _loss(trial, roles)
    yield from _step(trial, roles, names, frozen)
    yield from _order(trial, roles)
    yield from _mode(trial, roles, names)
    if not failing:  # otherwise, experiments fail because the signatures that they call do
        errors = {error: name for name, error in reversed(list(trial.errors.items())) if name != "load"}
        for error, experiment in errors.items():
            yield Finding(kinds.SIGNATURE_FAILS, experiment, error)


def _loss(trial: Trial, roles: Roles) -> Iterator[Finding]:
    found = trial.result("loss")
    if found is None:
        return
    train = roles["train"]["name"]
    if not found["finite"]:
        yield Finding(kinds.LOSS_NOT_FINITE, train, "a step returned NaN or infinity")
    elif found["relation"] in LOSSES:
        returned = f"returned {', '.join(f'{loss:.4g}' for loss in found['returned'])}"
        known = loss_text(found)
        yield Finding(LOSSES[found["relation"]], train, f"compared with {known}" if known else returned)


def loss_text(found: Mapping[str, Any]) -> str:
    """Return the name of the loss that was found; empty if it is unknown."""
    if not found.get("loss"):
        return ""
    of = (" of logits" if found["from_logits"] else " of probabilities") if "crossentropy" in found["loss"] else ""
    return f"{found['loss']}{of}"


def _step(trial: Trial, roles: Roles, names: Mapping[str, str], frozen: Set[str]) -> Iterator[Finding]:
    found = trial.result("step")
    if found is None:
        return
    train = roles["train"]["name"]
    if found["not_finite"]:
        yield Finding(kinds.DIVERGES, train, _named(found["not_finite"], names))
    elif found["weights"] and len(found["unchanged"]) == found["weights"]:
        yield Finding(kinds.NO_CHANGE, train, f"none of {found['weights']} weights changed in 5 steps")
    elif unchanged := [name for name in found["unchanged"] if name not in frozen]:
        yield Finding(kinds.PARTIAL_CHANGE, train, _named(unchanged, names))


def _order(trial: Trial, roles: Roles) -> Iterator[Finding]:
    found = trial.result("order")
    if found is None:
        return
    restore = roles["restore"]["name"]
    if found["moved"]:
        pairs = [f"{written} comes back as {read}" for written, read in found["moved"]]
        yield Finding(kinds.OTHER_ORDER, restore, few(pairs, MOST))
    if found["lost"]:
        yield Finding(kinds.NOT_WRITTEN, restore, few(found["lost"], MOST))


def _mode(trial: Trial, roles: Roles, names: Mapping[str, str]) -> Iterator[Finding]:
    found = trial.result("mode")
    if found is None:
        return
    infer = roles["infer"]["name"]
    if found["random"] > SAME:
        yield Finding(kinds.RANDOM_INFERENCE, infer, f"outputs of the same rows differ by {found['random']:.1%}")
    elif found["dependent"] > SAME:
        yield Finding(
            kinds.BATCH_DEPENDENT, infer, f"a row's outputs differ by {found['dependent']:.1%} next to other rows"
        )
    if found["changed"]:
        yield Finding(kinds.INFERENCE_TRAINS, infer, _named(found["changed"], names))


def _named(outputs: list[str], names: Mapping[str, str]) -> str:
    return few([f"{name} ({names[name]})" if names.get(name, name) != name else name for name in outputs], MOST)
