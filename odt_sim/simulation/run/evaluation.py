"""The evaluation of one device: its deployed model on its own examples and on other devices' examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.predictor import Predictor
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights, is_finite
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.cohort import choose_unseen, holds
from odt_sim.simulation.run.exclusion import Excluded
from odt_sim.strategies.base import Tensors

Row = dict[str, Any]

PREFIXES = ("train_", "validation_", "global_", "local_", "others_", "adapted_", "deploy_", "period_")
"""The prefixes of measured columns; names of a strategy's own records must not begin with them."""

DEPLOY_WORK = "deploy_work"
"""The key of the calls and rows of `deploy` by signature; records have their cost on the clock instead of this column."""

COMMON = 256  # test examples shared by all devices: their cost does not grow with the fleet


class Evaluation:
    """Evaluates devices, one after another."""

    def __init__(self, job: Job, test_examples: Callable[[Device], Examples] | None = None) -> None:
        """Draw the test examples that all devices share.

        Args:
            job: The job.
            test_examples: Returns a device's test examples, if they are not in the job's data.
        """
        self._job, self._data, self._attacked = job, job.data, bool(job.fleet.hostile)
        # A device has its test examples only once its model is deployed.
        self._test_examples = test_examples or (
            lambda device: Examples(job.data.x, job.data.y, job.data.arrived(device.id, device.round)[2])
        )
        self._unseen = choose_unseen(job.data.devices, job.fleet.unseen, job.seed)
        self._common = CommonExamples.drawn(job.data, job.seed)

    def row(self, device: Device, received: Tensors, broadcast: Tensors, *, final: bool) -> Row | Excluded:
        """Deploy to a device and return its columns, which `docs/evaluation.md` defines.

        Args:
            device: The device, in its state after the round.
            received: What it receives after the round.
            broadcast: The server's broadcast after the round.
            final: Whether to add the columns that are measured once, at the end of a run.

        Raises:
            SimulationError: The strategy failed.
        """
        state_bytes = sum(array_of(tensor).nbytes for tensor in device.state.values())
        self.deploy(device, received)
        if not len(device.test_examples):
            return Excluded("no test example has arrived yet")
        if not is_finite(device.weights.vector):
            return Excluded("deployed weights not finite")
        calls: Row = {"deploy_train_calls": device.calls.train, "deploy_infer_calls": device.calls.infer}
        calls[DEPLOY_WORK] = dict(device.calls.by_signature), dict(device.calls.rows)
        row: Row = {"device": device.id, "train_examples": len(device.train_examples), **device.evaluate()}
        row["validation_examples"] = len(device.validation_examples)
        row |= self._periods(device)
        if len(device.validation_examples) and not self._data.arrival:  # rounds of different examples do not compare
            row |= _prefixed("validation", device.evaluate("validation"))
        for split, column in (("test", "loss"), ("validation", "validation_loss")):
            if not math.isfinite(row.get(column, 0.0)):  # else NaN outputs would count as wrong answers
                return Excluded(f"{split} loss not finite")
        with self._job.strategy_errors(f"on device {device.id} after round {device.round}"):
            row |= _own_records(device, row)
        return {**row, "state_bytes": state_bytes, **calls, **self._once(device, broadcast)} if final else row

    def deploy(self, device: Device, received: Tensors) -> None:
        """Set a device's deployed weights or predictor, as the strategy returns them, and its test examples.

        Args:
            device: The device, in its state after a round.
            received: What it receives after the round.

        Raises:
            SimulationError: The strategy failed.
        """
        strategy = self._job.strategy
        with self._job.strategy_errors(f"on device {device.id} after round {device.round}"):
            deployed = strategy.deploy(device, received)
            if isinstance(deployed, Predictor):
                device.predictor = deployed
            elif isinstance(deployed, Weights):
                device.restore(deployed)
            else:
                raise TypeError(f"deploy returned {type(deployed).__name__}, expected Weights or a Predictor")
        device.test_examples = self._test_examples(device)

    def _periods(self, device: Device) -> Row:
        """Return the first metric on the test examples of each period so far, in columns such as `period_1_accuracy`."""
        arrival, metric = self._data.arrival, self._job.metrics[0]
        if arrival is None:
            return {}
        row: Row = {}
        for period in range(arrival.at(device.round) + 1):
            rows = arrival.of_period(self._data.test(device.id), period)
            if len(rows):
                figures = _evaluated_on(device, Examples(self._data.x, self._data.y, rows))
                row[f"period_{period + 1}_{metric}"] = figures.get(metric)
        return row

    def _once(self, device: Device, broadcast: Tensors) -> Row:
        steps = self._job.fleet.adaptation_steps
        row = _prefixed("train", device.evaluate("train"))
        others = self._common.of_others(device.id)
        if len(others):
            row |= _prefixed("others", _evaluated_on(device, Examples(self._data.x, self._data.y, others)))
        with self._job.attack_errors(f"on device {device.id} after round {device.round}"):
            triggered = self._job.attack.triggered(device.test_examples) if self._attacked else None
        row |= _success("attack_success", device, triggered)
        if device.predictor is not None:
            row["predictor_bytes"] = device.predictor.nbytes
        elif steps and holds(self._unseen, device.id):
            _adapt(device, steps)
            row |= _prefixed("adapted", device.evaluate())
        shared = broadcast.get("weights")
        if isinstance(shared, Weights) and shared.layout == device.model.moving:
            device.correction = device.predictor = None
            device.restore(device.initial.replace(shared))  # frozen parameters do not travel
            row |= _prefixed("global", device.evaluate())
            row |= _success("global_attack_success", device, triggered)
        return row


def unmeasured(data: FederatedData, device: int, reason: str) -> Row:
    """Return the row of a device that cannot be evaluated: its example counts and the reason."""
    train, validation, test = np.diff(data.offsets[device]).tolist()
    numbers = {"train_examples": train, "examples": test, "validation_examples": validation}
    return {"device": device, **numbers, "not_evaluated": reason}


def not_evaluated(rows: Sequence[Row]) -> dict[int, str] | None:
    """Return why devices could not be evaluated, by id; None if all were."""
    reasons = {row["device"]: row["not_evaluated"] for row in rows if "not_evaluated" in row}
    return reasons or None


def _adapt(device: Device, steps: int) -> None:
    """Train the deployed model for `steps` plain steps, as in the first round of local training."""
    device.correction = None
    device.begin_again()
    for batch in device.batches(TrainingPlan(steps=steps)):
        device.train_step(batch)


def _evaluated_on(device: Device, examples: Examples) -> Mapping[str, float]:
    """Return the metrics of a device's model on test examples other than its own."""
    own, device.test_examples = device.test_examples, examples
    figures = device.evaluate()
    device.test_examples = own
    return figures


def _success(name: str, device: Device, triggered: Examples | None) -> Row:
    """Return the share of triggered examples that the model answers as the attacker wants; empty without them."""
    if triggered is None or not len(triggered):
        return {}
    return {name: _evaluated_on(device, triggered)["accuracy"]}


def _prefixed(name: str, figures: Mapping[str, Any]) -> Row:
    return {f"{name}_{metric}": value for metric, value in figures.items() if metric != "examples"}


def _own_records(device: Device, row: Row) -> Row:
    """Return the strategy's records of a device, after checks that they are numbers and name no measured column."""
    for name, value in device.records.items():
        if name in (*row, "seen", "user", "state_bytes", "not_evaluated") or name.startswith(PREFIXES):
            raise ValueError(f"device.records[{name!r}] has the name of a built-in metric; choose another name")
        if not isinstance(value, int | float | np.number):
            raise TypeError(f"device.records[{name!r}] is a {type(value).__name__}, expected a number")
    return device.records


@dataclass(frozen=True, eq=False)
class CommonExamples:
    """Test examples of the whole fleet, which show what a personal model has forgotten.

    Attributes:
        rows: `[drawn]` int64, rows of the data's arrays.
        owners: `[drawn]` int64, the device that owns each row.
    """

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]

    @classmethod
    def drawn(cls, data: FederatedData, seed: int) -> "CommonExamples":
        """Draw at most 256 test examples, each with the same probability."""
        sizes = data.offsets[:, 3] - data.offsets[:, 2]
        ends = np.cumsum(sizes)
        generator = np.random.default_rng([seed, *b"others"])
        chosen = np.sort(generator.choice(ends[-1], min(COMMON, ends[-1]), replace=False))
        owners = np.searchsorted(ends, chosen, side="right")
        places = chosen - (ends - sizes)[owners]
        rows = [data.test(owner)[place] for owner, place in zip(owners.tolist(), places.tolist(), strict=True)]
        return cls(np.array(rows, np.int64), owners)

    def of_others(self, device: int) -> NDArray[np.int64]:
        """Return the rows that other devices own; empty in a fleet of one."""
        return np.asarray(self.rows[self.owners != device])
