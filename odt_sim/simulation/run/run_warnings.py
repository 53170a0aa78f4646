"""Warnings about a valid run that is probably not what the user meant: its fleet, data and model."""

import math
from collections.abc import Iterator

import numpy as np

from odt_sim._support.text import counted
from odt_sim.aggregators.differential_privacy import DifferentialPrivacy
from odt_sim.data.store.columns import Array, arrays_of
from odt_sim.model.contract.names import full
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.reading.inputs import unscaled
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.checks import has_validation

BOUNDED = ("mean_absolute_error", "huber")
"""Losses with a gradient that does not grow with the error; with Huber's, above its delta."""
LARGEST_TARGET = 100.0
"""The root mean square of targets, in deltas, that triggers a warning: 40 rounds of ten steps of 0.1 only reach 40."""
LARGEST_FEATURE = 10.0
"""The root mean square of a feature that triggers a warning: logistic regression with steps of 0.1 is stable below 9."""
UNEQUAL_TARGETS = 10.0
"""The ratio of devices' targets, ninth to first decile, that triggers a warning: squared errors then differ a hundredfold."""
SAMPLED_DEVICES = 100  # devices that are sampled of targets
SAMPLED = 1000  # rows that are sampled of features and targets
SMALLEST_INPUT = 0.01
"""The largest scaled input that triggers a warning: scaling gives 1 for pixels in 0..255, but 0.004 for those in 0..1."""
SAMPLED_INPUTS = 16  # rows that are sampled of inputs; images are large


def run_warnings(job: Job, *, own_examples: bool) -> Iterator[str]:
    """Yield the warnings of a run.

    Args:
        job: The run.
        own_examples: Whether devices have their own examples instead of the job's data.
    """
    of_examples = (
        () if own_examples else (_without_validation, _large_targets, _unequal_targets, _large_features, _scaled_twice)
    )
    checks = (_few_seen, _nothing_travels, _periods_left, _large_delta, _noisy_variances, *of_examples)
    yield from filter(None, (check(job) for check in checks))


def _without_validation(job: Job) -> str | None:
    """Return a warning if the strategy chooses on validation examples and no device has any; otherwise None."""
    consequence = job.strategy.without_validation
    if consequence is None or has_validation(job.data):
        return None
    return (
        f"strategy {job.strategy.name}: makes choices on validation examples, but no device has any, so {consequence}; "
        "set split.validation above 0"
    )


def _large_targets(job: Job) -> str | None:
    """Return a warning if steps of a loss with a bounded gradient do not reach the targets; otherwise None."""
    bounds = {output.name: (output.loss, output.delta) for output in job.model.outputs if output.loss in BOUNDED}
    targets = arrays_of(job.data.y)
    for name, (loss, delta) in bounds.items():
        size = _size(targets[name][:: max(1, len(targets[name]) // SAMPLED)])
        if size > LARGEST_TARGET * (delta if loss == "huber" else 1.0):
            return (
                f"data {job.data.name}: {full('y', name)} has values of about {size:.3g}, for which {loss} hardly "
                "trains at usual learning rates, since its gradient does not grow with the error; divide the "
                "targets, or multiply the output in the model's last layer"
            )
    return None


def _unequal_targets(job: Job) -> str | None:
    """Return a warning if targets of a regression differ in scale between devices; otherwise None."""
    data, targets = job.data, arrays_of(job.data.y)
    devices = range(0, data.devices, max(1, data.devices // SAMPLED_DEVICES))
    for output in job.model.outputs:
        if output.task != "regression":
            continue
        rows = (data.train(device) for device in devices)
        sizes = [_size(targets[output.name][each[:: max(1, len(each) // SAMPLED)]]) for each in rows]
        low, high = np.quantile([size for size in sizes if size] or [1.0], (0.1, 0.9))
        if high > UNEQUAL_TARGETS * low:
            return (
                f"data {data.name}: {full('y', output.name)} is of about {low:.3g} on some devices and {high:.3g} on "
                "others, so the largest dominate the training and the means of errors; scale the targets of each "
                "device: see docs/how-to/forecasts.md"
            )
    return None


def _size(values: Array) -> float:
    """Return the root mean square."""
    rows = np.asarray(values, np.float64)
    return math.sqrt(np.mean(rows**2)) if rows.size else 0.0


def _large_features(job: Job) -> str | None:
    """Return a warning if large features reach weights unscaled, so that steps overshoot; otherwise None."""
    used = job.data.indices[:: max(1, len(job.data.indices) // SAMPLED)]
    for name, array in arrays_of(job.data.x).items():
        if array.ndim != 2 or array.dtype != np.float32:
            continue
        rows = np.asarray(array[used], np.float64)
        size = math.sqrt(np.mean(rows**2, axis=0).max(initial=0.0))
        if size > LARGEST_FEATURE and full("x", name) in unscaled(
            read_graph(job.model.content, job.model.where), "infer"
        ):
            return (
                f"data {job.data.name}: {full('x', name)} has features of magnitude up to {size:.3g}, for which "
                "steps at usual learning rates overshoot; set data.standardize=true (in Python "
                "Dataset(standardize=True)), or scale them in the model, as keras.layers.Normalization does"
            )
    return None


def _scaled_twice(job: Job) -> str | None:
    """Return a warning if the model scales its inputs to almost zero, such as images in 0..1; otherwise None."""
    inputs = arrays_of(job.data.x)
    for name, scale in job.model.scales.items():
        rows = np.asarray(inputs[name][:: max(1, len(inputs[name]) // SAMPLED_INPUTS)], np.float64)
        size = float(np.abs(rows).max(initial=0.0))
        if 0 < size * scale <= SMALLEST_INPUT:
            return (
                f"data {job.data.name}: {full('x', name)} is at most {size:.3g}, but the model first multiplies it "
                f"by {scale:.3g}, as for pixels of 0..255; provide such pixels, or multiply by 255 in the model before that, "
                "as keras.layers.Rescaling(255.0) does"
            )
    return None


def _few_seen(job: Job) -> str | None:
    """Return a warning if more devices never train than train; otherwise None."""
    seen = job.participants
    if job.data.devices <= 2 * seen:
        return None
    return (
        f"fleet.unseen: {job.fleet.unseen_count} of {job.data.devices} devices never train, only {seen} do; set a "
        "smaller fleet.unseen, or 0 to train all"
    )


def _periods_left(job: Job) -> str | None:
    """Return a warning if the run's rounds do not reach all periods; otherwise None."""
    arrival = job.data.arrival
    if arrival is None or not job.rounds or (reached := arrival.at(job.rounds) + 1) == arrival.periods:
        return None
    return (
        f"arrival: in {counted(job.rounds, 'round')}, a run reaches {reached} of {arrival.periods} periods, so later "
        f"examples are used neither in training nor in evaluation; set run.rounds to {arrival.periods * arrival.rounds}, or "
        "fewer arrival.periods"
    )


def _large_delta(job: Job) -> str | None:
    """Return a warning if delta is so large that publishing a user's data counts as private; otherwise None."""
    delta = getattr(job.effective_aggregator, "delta", 0.0)
    if not (isinstance(job.effective_aggregator, DifferentialPrivacy) and delta * job.participants >= 1):
        return None
    return (
        f"aggregator.delta: {delta:g} of {job.participants} users amounts to one user or more, so even publishing "
        f"the data of a random user would satisfy the guarantee; set it well below {1 / job.participants:.1g}"
    )


def _noisy_variances(job: Job) -> str | None:
    """Return a warning if noise is added to BatchNorm statistics, which may make variances negative; otherwise None."""
    aggregator, strategy = job.effective_aggregator, job.strategy
    if not (isinstance(aggregator, DifferentialPrivacy) and aggregator.noise_multiplier):
        return None
    if not any(each.role == "statistic" and strategy.shared(each) for each in job.model.parameters):
        return None
    return (
        f"aggregator {aggregator.name}: adds noise to the BatchNorm statistics of the model {job.model.name}, and a "
        "negative variance makes outputs NaN; choose strategy=fedbn, which keeps them on devices, or a model with "
        "other normalization"
    )


def _nothing_travels(job: Job) -> str | None:
    """Return a warning if the strategy shares only frozen parameters; otherwise None."""
    shared = [parameter for parameter in job.model.parameters if job.strategy.shared(parameter)]
    if not shared or any(parameter.moves for parameter in shared):
        return None
    return (
        f"strategy {job.strategy.name}: shares only parameters that are frozen in the model {job.model.name}, so "
        "nothing is sent and every device trains alone; choose another strategy, or a model whose shared part is trainable"
    )
