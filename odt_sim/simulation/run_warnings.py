"""Warnings of a run that is possible, and hardly what was meant: its fleet, data and model."""

import math
from collections.abc import Iterator

import numpy as np

from odt_sim.aggregators.differential_privacy import DifferentialPrivacy
from odt_sim.data.columns import arrays_of
from odt_sim.model.graph_reader import read_graph
from odt_sim.model.names import full
from odt_sim.model.scaling import unscaled
from odt_sim.simulation.checks import has_validation
from odt_sim.simulation.job import Job

BOUNDED = ("mean_absolute_error", "huber")
"""Losses with a gradient that does not grow with the error, or no longer above Huber's delta."""
LARGEST_TARGET = 100.0
"""The root mean square of targets, in deltas, above which a run is warned: 40 rounds of ten steps of 0.1 come to 40."""
LARGEST_FEATURE = 10.0
"""The root mean square of a feature above which a run is warned: a logistic regression is stable in steps of 0.1 below 9."""
SAMPLED = 1000  # rows by which features and targets are judged
SMALLEST_INPUT = 0.01
"""What a model should see of an input at least: pixels of 0..255 are scaled to 1, those of 0..1 once more to 0.004."""
SAMPLED_INPUTS = 16  # rows by which inputs are judged; images are large


def run_warnings(job: Job, *, own_examples: bool) -> Iterator[str]:
    """Yield the warnings of a run.

    Args:
        job: The run.
        own_examples: Whether devices have examples of their own in place of the data's.
    """
    of_examples = () if own_examples else (_without_validation, _large_targets, _large_features, _scaled_twice)
    checks = (_few_seen, _nothing_travels, _periods_left, _large_delta, _noisy_variances, *of_examples)
    yield from filter(None, (check(job) for check in checks))


def _without_validation(job: Job) -> str | None:
    """Return a warning of a strategy that chooses on validation examples where no device has any; None for all others."""
    consequence = job.strategy.without_validation
    if consequence is None or has_validation(job.data):
        return None
    return (
        f"strategy {job.strategy.name}: chooses on validation examples, and no device has any, so {consequence}; "
        "set split.validation above 0"
    )


def _large_targets(job: Job) -> str | None:
    """Return a warning of targets that steps of a loss with a bounded gradient do not reach; None for all others."""
    bounds = {output.name: (output.loss, output.delta) for output in job.model.outputs if output.loss in BOUNDED}
    targets = arrays_of(job.data.y)
    for name, (loss, delta) in bounds.items():
        rows = np.asarray(targets[name][:: max(1, len(targets[name]) // SAMPLED)], np.float64)
        size = math.sqrt(np.mean(rows**2)) if rows.size else 0.0
        if size > LARGEST_TARGET * (delta if loss == "huber" else 1.0):
            return (
                f"data {job.data.name}: {full('y', name)} is of the size {size:.3g}, where {loss} hardly trains at usual "
                "learning rates, since its gradient does not grow with the error; divide the targets, or multiply the "
                "output in the model's last layer"
            )
    return None


def _large_features(job: Job) -> str | None:
    """Return a warning of features by which steps overshoot, as weights multiply them unscaled; None for all others."""
    for name, array in arrays_of(job.data.x).items():
        if array.ndim != 2 or array.dtype != np.float32:
            continue
        rows = np.asarray(array[:: max(1, len(array) // SAMPLED)], np.float64)
        size = math.sqrt(np.mean(rows**2, axis=0).max(initial=0.0))
        if size > LARGEST_FEATURE and full("x", name) in unscaled(
            read_graph(job.model.content, job.model.where), "infer"
        ):
            return (
                f"data {job.data.name}: {full('x', name)} has features of sizes up to {size:.3g}, where steps at usual "
                "learning rates overshoot; set data.standardize=true, in Python Dataset(standardize=True), or let the model "
                "begin with keras.layers.Normalization"
            )
    return None


def _scaled_twice(job: Job) -> str | None:
    """Return a warning of inputs that the model scales to almost nothing, such as images of 0..1; None for all others."""
    inputs = arrays_of(job.data.x)
    for name, scale in job.model.scales.items():
        rows = np.asarray(inputs[name][:: max(1, len(inputs[name]) // SAMPLED_INPUTS)], np.float64)
        size = float(np.abs(rows).max(initial=0.0))
        if 0 < size * scale <= SMALLEST_INPUT:
            return (
                f"data {job.data.name}: {full('x', name)} is at most {size:.3g}, and the model multiplies it by {scale:.3g} "
                "first, as if it were pixels of 0..255; give such, or put keras.layers.Rescaling(255.0) before that layer"
            )
    return None


def _few_seen(job: Job) -> str | None:
    """Return a warning of a fleet with more devices that never train than others; None for all others."""
    seen = job.participants
    if job.data.devices <= 2 * seen:
        return None
    return (
        f"fleet.unseen: {job.fleet.unseen_count} of {job.data.devices} devices never train, only {seen} do; set a smaller "
        "fleet.unseen, 0 for all to train"
    )


def _periods_left(job: Job) -> str | None:
    """Return a warning of periods that the rounds of the run do not reach; None for all others."""
    arrival = job.data.arrival
    if arrival is None or not job.rounds or (reached := arrival.at(job.rounds) + 1) == arrival.periods:
        return None
    return (
        f"arrival: {job.rounds} rounds reach {reached} of {arrival.periods} periods, and later examples have no part in "
        f"training and evaluation; set run.rounds to {arrival.periods * arrival.rounds}, or fewer arrival.periods"
    )


def _large_delta(job: Job) -> str | None:
    """Return a warning of a delta at which publishing a user's data is private; None for all others."""
    delta = getattr(job.effective_aggregator, "delta", 0.0)
    if not (isinstance(job.effective_aggregator, DifferentialPrivacy) and delta * job.participants >= 1):
        return None
    return (
        f"aggregator.delta: {delta:g} of {job.participants} users is a user or more, so that publishing the data of one "
        f"drawn at random would meet the promise; set it well below {1 / job.participants:.1g}"
    )


def _noisy_variances(job: Job) -> str | None:
    """Return a warning of BatchNorm statistics that travel with noise, which may make variances negative, or None."""
    aggregator, strategy = job.effective_aggregator, job.strategy
    if not (isinstance(aggregator, DifferentialPrivacy) and aggregator.noise_multiplier):
        return None
    if not any(each.role == "statistic" and strategy.shared(each) for each in job.model.parameters):
        return None
    return (
        f"aggregator {aggregator.name}: adds noise to the BatchNorm statistics of the model {job.model.name}, and a variance "
        "below 0 makes outputs NaN; choose strategy=fedbn, which keeps them on devices, or a model with other normalization"
    )


def _nothing_travels(job: Job) -> str | None:
    """Return a warning of a strategy that shares frozen parameters only; None for all others."""
    shared = [parameter for parameter in job.model.parameters if job.strategy.shared(parameter)]
    if not shared or any(parameter.moves for parameter in shared):
        return None
    return (
        f"strategy {job.strategy.name}: shares only parameters that are frozen in the model {job.model.name}, so nothing "
        "travels and every device trains alone; choose another strategy, or a model whose shared part trains"
    )
