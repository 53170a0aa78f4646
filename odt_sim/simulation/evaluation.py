"""What is measured of one device: the model that its user gets, on its own examples and on those of others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.federated import FederatedData
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.model.weights import Weights, is_finite
from odt_sim.simulation.cohort import choose_unseen, holds
from odt_sim.simulation.exclusion import Excluded
from odt_sim.simulation.job import Job
from odt_sim.strategies.base import Tensors, array_of

Row = dict[str, Any]

PREFIXES = ("train_", "validation_", "global_", "local_", "others_", "adapted_", "deploy_")
"""How the names of columns begin that are measured here or by the coordinator."""


class Evaluation:
    """Measures devices, one after the other."""

    def __init__(self, job: Job) -> None:
        """Draw the examples that all devices share."""
        self._job, self._data, self._strategy = job, job.data, job.strategy
        self._unseen = choose_unseen(job.data.devices, job.fleet.unseen, job.seed)
        self._common = CommonExamples.drawn(job.data, job.seed)

    def row(self, device: Device, broadcast: Tensors, *, final: bool) -> Row | Excluded:
        """Deploys to a device and measures what it then has; `docs/evaluation.md` defines each column.

        Args:
            device: As it is after the round that is evaluated.
            broadcast: What the server sends out after that round.
            final: Whether to measure also what is measured once, at the end of a run.

        Returns:
            `device`, `train_examples`, `examples`, the metrics, `validation_examples`, the metrics on these as
            `validation_` where there are any, and what the strategy records. At the end also `state_bytes`,
            `deploy_train_calls`, `deploy_infer_calls`, and the metrics as `train_`, as `others_` where there are others,
            as `adapted_` of an unseen device, and as `global_` where the whole model travels.

        Raises:
            SimulationError: The strategy failed.
        """
        cost = {"state_bytes": sum(array_of(tensor).nbytes for tensor in device.state.values())}
        with self._job.strategy_errors(f"on device {device.id} after round {device.round}"):
            weights = self._strategy.deploy(device, self._strategy.message(broadcast, device.id))
            if not isinstance(weights, Weights):
                raise TypeError(f"deploy returned {type(weights).__name__}, expected Weights")
            device.restore(weights)
        if not is_finite(device.weights.vector):
            return Excluded("deployed weights not finite")
        cost |= {"deploy_train_calls": device.calls.train, "deploy_infer_calls": device.calls.infer}
        self._test_on(device, self._data.test(device.id))
        row: Row = {"device": device.id, "train_examples": len(device.train_examples), **device.evaluate()}
        row["validation_examples"] = len(device.validation_examples)
        if len(device.validation_examples):
            row |= _prefixed("validation", device.evaluate("validation"))
        with self._job.strategy_errors(f"on device {device.id} after round {device.round}"):
            row |= _own_records(device, row)
        return {**row, **cost, **self._once(device, broadcast)} if final else row

    def _test_on(self, device: Device, rows: Any) -> None:
        device.test_examples = Examples(self._data.x, self._data.y, rows)

    def _once(self, device: Device, broadcast: Tensors) -> Row:
        own = device.test_examples
        row = _prefixed("train", device.evaluate("train"))
        others = self._common.of_others(device.id)
        if len(others):
            self._test_on(device, others)
            row |= _without_examples("others", device.evaluate())
            device.test_examples = own
        if self._job.fleet.adaptation_steps and holds(self._unseen, device.id):
            _adapt(device, self._job.fleet.adaptation_steps)
            row |= _without_examples("adapted", device.evaluate())
        shared = broadcast.get("weights")
        if isinstance(shared, Weights) and shared.layout == device.model.moving:
            device.correction = None
            device.restore(device.initial.replace(shared))  # frozen parameters, which do not travel, as in the file
            row |= _without_examples("global", device.evaluate())
        return row


def unmeasured(data: FederatedData, device: int, reason: str) -> Row:
    """Returns the row of a device that cannot be evaluated: its numbers of examples, and why as `not_evaluated`."""
    train, validation, test = np.diff(data.offsets[device]).tolist()
    numbers = {"train_examples": train, "examples": test, "validation_examples": validation}
    return {"device": device, **numbers, "not_evaluated": reason}


def not_evaluated(rows: Sequence[Row]) -> dict[int, str] | None:
    """Return why devices could not be evaluated, by id; None if all were."""
    reasons = {row["device"]: row["not_evaluated"] for row in rows if "not_evaluated" in row}
    return reasons or None


def _adapt(device: Device, steps: int) -> None:
    """Trains what was deployed for some more plain steps, as if the device began a round of local training with it."""
    device.correction = None
    device.begin_again()
    for batch in device.batches(TrainingPlan(steps=steps)):
        device.train_step(batch)


def _prefixed(name: str, figures: Mapping[str, Any]) -> Row:
    return {f"{name}_{metric}": value for metric, value in figures.items()}


def _without_examples(name: str, figures: Mapping[str, Any]) -> Row:
    return _prefixed(name, {metric: value for metric, value in figures.items() if metric != "examples"})


def _own_records(device: Device, row: Row) -> Row:
    """Returns what the strategy recorded, under names that are not those of measured figures."""
    for name, value in device.records.items():
        if name in (*row, "seen", "state_bytes", "not_evaluated") or name.startswith(PREFIXES):
            raise ValueError(f"device.records[{name!r}] has the name of a measured figure; choose another")
        if not isinstance(value, int | float | np.number):
            raise TypeError(f"device.records[{name!r}] is a {type(value).__name__}, expected a number")
    return device.records


MOST = 256
"""The examples that are drawn at most: their cost is the same for every device, in a fleet of any size."""


@dataclass(frozen=True, eq=False)
class CommonExamples:
    """Test examples that were drawn from all devices' at once, so that devices are measured on nearly the same ones.

    Attributes:
        rows: `[drawn]` int64, in the data's arrays.
        owners: `[drawn]` int64, the device that each is of.
    """

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]

    @classmethod
    def drawn(cls, data: FederatedData, seed: int) -> "CommonExamples":
        """Draws at most 256 of all test examples, each with the same chance; the run's seed decides which."""
        sizes = data.offsets[:, 3] - data.offsets[:, 2]
        ends = np.cumsum(sizes)
        generator = np.random.default_rng([seed, *b"others"])
        chosen = np.sort(generator.choice(ends[-1], min(MOST, ends[-1]), replace=False))
        owners = np.searchsorted(ends, chosen, side="right")
        places = chosen - (ends - sizes)[owners]
        rows = [data.test(owner)[place] for owner, place in zip(owners.tolist(), places.tolist(), strict=True)]
        return cls(np.array(rows, np.int64), owners)

    def of_others(self, device: int) -> NDArray[np.int64]:
        """Returns the rows that are not a device's own; none in a fleet of one."""
        return np.asarray(self.rows[self.owners != device])
