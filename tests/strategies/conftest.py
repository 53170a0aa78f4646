"""A small fleet, runs over it, and its twin in plain numpy."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from orders import orders

from odt_sim import Device, Fleet, Simulation, Strategy, TrainableModel, TrainingPlan, Weights
from odt_sim.aggregators import Aggregator
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.examples import Examples
from odt_sim.model.contract.manifest import METADATA_NAME
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.persistence.commit import Commit, CommitFile, commit_name
from odt_sim.persistence.device_states import DeviceStore, read_state
from odt_sim.persistence.storage import Folder

SIZES = [(20, 6, 7), (33, 5, 9), (7, 4, 6)]
"""Train, validation and test examples of each device."""
ROUNDS, EPOCHS, RATE, BATCH, SEED = 3, 2, 0.1, 16, 4


def federated(sizes: Sequence[tuple[int, ...]], shape: tuple[int, ...], classes: int) -> FederatedData:
    """Draw a fleet in which each device labels its examples by its own rule on the first four features."""
    random = np.random.default_rng(1)
    rows = random.normal(size=(sum(map(sum, sizes)), prod(shape))).astype(np.float32)
    rows[:, 4:] /= 10
    ends = np.cumsum([0, *(n for device in sizes for n in device)])
    offsets = np.array([ends[3 * i : 3 * i + 4] for i in range(len(sizes))])
    y = np.empty(len(rows), np.int32)
    for first, _, _, last in offsets:
        y[first:last] = (rows[first:last, :4] @ random.normal(size=(4, classes))).argmax(axis=1)
    x = rows.reshape(-1, *shape)
    return FederatedData("synthetic", x, y, classes, np.arange(len(x)), offsets)


@pytest.fixture(scope="session")
def data() -> FederatedData:
    """Three devices with examples of the digits' shape."""
    return federated(SIZES, (8, 8, 1), 10)


@pytest.fixture(scope="session")
def small_data() -> FederatedData:
    """Three devices for the small models: 6 features, 3 classes."""
    return federated(SIZES, (6,), 3)


@pytest.fixture(scope="session")
def split_softmax(softmax: TrainableModel) -> TrainableModel:
    """Softmax regression with the kernel as body and the bias as head."""
    kernel, bias = softmax.manifest.parameters
    manifest = replace(softmax.manifest, parameters=(replace(kernel, group="body"), replace(bias, group="head")))
    return TrainableModel.from_content(with_metadata(softmax.content, METADATA_NAME, manifest.to_json().encode()))


@pytest.fixture(scope="session")
def bare(foreign: Path) -> TrainableModel:
    """Softmax regression, [4, 6] to 3 classes, with the required signatures only: no manifest, no learning rate input."""
    return TrainableModel.load(foreign / "plain.tflite", loss="sparse_categorical_crossentropy")


@dataclass
class Run:
    """A finished run and its deployed weights.

    Attributes:
        directory: Its folder.
        model: The trained model.
        data: The fleet's data.
        strategy: The strategy.
    """

    directory: Path
    model: TrainableModel
    data: FederatedData
    strategy: Strategy
    rounds: int

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "devices.jsonl").read_text().splitlines()]

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The rows without the cost columns."""
        costs = ("state_bytes", "deploy_train_calls", "deploy_infer_calls")
        return [{name: value for name, value in row.items() if name not in costs} for row in self.rows]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rounds' records."""
        return [json.loads(line) for line in (self.directory / "rounds.jsonl").read_text().splitlines()]

    @property
    def traffic(self) -> list[tuple[int, int]]:
        """The bytes down and up of each round."""
        return [(record["bytes_down"], record["bytes_up"]) for record in self.records]

    @property
    def unseen(self) -> int:
        """The id of the only unseen device."""
        [device] = [row["device"] for row in self.rows if not row["seen"]]
        return int(device)

    @property
    def storage(self) -> Folder:
        return Folder(self.directory / "checkpoint")

    @property
    def commit(self) -> Commit:
        """The last commit."""
        _, texts = read_state(self.storage, commit_name(self.rounds), self.model)
        identity = {name: text for name, text in texts.items() if name not in ("round", "records")}
        return CommitFile(self.storage, self.rounds, self.model, identity).read()

    @property
    def broadcast(self) -> dict[str, Any]:
        return dict(self.commit.state.broadcast)

    @property
    def weights(self) -> Weights:
        return self.commit.state.weights

    def device(self, id: int) -> Device:
        """Return a device as in the evaluation of the last round."""
        splits = [
            Examples(self.data.x, self.data.y, part(id))
            for part in (self.data.train, self.data.validation, self.data.test)
        ]
        device = Device(self.model, *splits, seed=SEED, id=id, round=self.rounds, plan=TrainingPlan(EPOCHS, RATE))
        device.state = DeviceStore(self.storage, self.model).load(id, self.commit.versions.of([id]).get(id))
        return device

    def deployed(self, id: int) -> Weights:
        """Return the deployed weights of a device."""
        return self.strategy.deploy(self.device(id), self.strategy.message(self.commit.state, id))


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., Run]:
    """Return a function that runs a strategy on the serial backend."""

    def run(
        strategy: Strategy,
        model: TrainableModel,
        data: FederatedData,
        rounds: int = ROUNDS,
        fleet: Fleet | None = None,
        aggregator: Aggregator | None = None,
    ) -> Run:
        directory = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        plan = TrainingPlan(EPOCHS, RATE)
        settings = {"rounds": rounds, "evaluate_every": rounds, "plan": plan, "fleet": fleet, "seed": SEED}
        settings["aggregator"] = aggregator
        Simulation(model, data, strategy, directory=directory, **settings).run()  # the last round is reported
        return Run(directory, model, data, strategy, rounds)

    return run


Vector = NDArray[np.float64]


@dataclass
class Twin:
    """The fleet in plain numpy: a softmax regression with the documented batch orders.

    A strategy is most easily written out on flat vectors `[650]`, kernel and bias in the order of the model's weights.

    Attributes:
        data: The fleet's examples.
        model: `NumpySoftmax` with the exported weights.
        exported: The exported model.
        simulate: Runs a strategy; see the fixture.
    """

    data: FederatedData
    model: Any
    exported: TrainableModel
    simulate: Callable[..., Run]

    def run(
        self,
        strategy: Strategy,
        model: TrainableModel | None = None,
        data: FederatedData | None = None,
        **options: Any,
    ) -> Run:
        """Run a strategy on the fleet, by default with the exported model."""
        return self.simulate(strategy, model or self.exported, data or self.data, **options)

    def relabelled(self, split: str) -> FederatedData:
        """Return the data with the next label for each example of a split of all devices."""
        y = self.data.y.copy()
        for device in range(self.data.devices):
            index = getattr(self.data, split)(device)
            y[index] = (y[index] + 1) % self.data.classes
        return replace(self.data, y=y)

    def without_validation(self, *devices: int) -> FederatedData:
        """Return the data in which the validation examples of devices are training examples."""
        offsets = self.data.offsets.copy()
        offsets[devices, 1] = offsets[devices, 2]
        return replace(self.data, offsets=offsets)

    def with_mixed_validation(self) -> "Twin":
        """Return the fleet whose devices share some validation examples, so that other models have value."""
        indices = self.data.indices.copy()
        places = np.concatenate([np.arange(start, stop) for start, stop in self.data.offsets[:, 1:3]])
        indices[places] = indices[np.roll(places, 4)]
        return replace(self, data=replace(self.data, indices=indices))

    def part(self, split: str, device: int) -> tuple[NDArray[Any], NDArray[Any]]:
        index = getattr(self.data, split)(device)
        return self.data.x[index], self.data.y[index]

    def train(self, model: Any, device: int, round: int, epochs: Sequence[int] = range(EPOCHS)) -> None:
        """Train for the given epochs of a round."""
        for x, y in self.batches(device, round, epochs):
            model.step(x, y, RATE)

    def batches(
        self, device: int, round: int, epochs: Sequence[int] = range(EPOCHS)
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield the examples of each step of a device in the given epochs of a round."""
        x, y = self.part("train", device)
        drawn = list(islice(orders(SEED, device, round, len(x)), max(epochs, default=-1) + 1))
        for order in (drawn[epoch] for epoch in epochs):
            for start in range(0, len(x), BATCH):
                rows = order[start : start + BATCH]
                yield x[rows], y[rows]

    @property
    def initial(self) -> Vector:
        """The exported weights, flat."""
        return self.model.flat()

    def gradient(self, w: Vector, x: NDArray[Any], y: NDArray[Any]) -> Vector:
        """The gradient of the mean cross entropy of a batch at flat weights, flat."""
        return self.at(w).gradient(x, y).flat()

    def descend(
        self,
        w: Vector,
        device: int,
        round: int,
        epochs: Sequence[int] = range(EPOCHS),
        extra: Callable[[Vector], Any] = lambda w: 0.0,
    ) -> Vector:
        """Return the flat weights after `w <- w - RATE (g + extra(w))` on each batch."""
        for x, y in self.batches(device, round, epochs):
            w = w - RATE * (self.gradient(w, x, y) + extra(w))
        return w

    def mean(self, vectors: Sequence[Vector]) -> Vector:
        """Return the mean over all devices, weighted by training examples."""
        return np.average(vectors, axis=0, weights=self.data.train_sizes)

    def at(self, w: Vector) -> Any:
        """Return the `NumpySoftmax` of flat weights."""
        return type(self.model).from_flat(w, self.data.classes)

    def loss(self, model: Any, device: int, split: str = "test") -> float:
        return float(model.losses(*self.part(split, device)).mean())

    def accuracy(self, model: Any, device: int) -> float:
        x, y = self.part("test", device)
        return float((model.logits(x).argmax(axis=1) == y).mean())

    def average(self, models: Sequence[Any]) -> Any:
        """Return the mean over the devices, weighted by training examples."""
        shares = self.data.train_sizes / self.data.train_sizes.sum()
        return type(self.model)(
            sum(share * m.kernel for share, m in zip(shares, models, strict=True)),
            sum(share * m.bias for share, m in zip(shares, models, strict=True)),
        )

    def assert_deployed(self, run: Run, models: Sequence[Vector]) -> None:
        """Check each device's deployed weights and metrics against those of its expected flat weights."""
        for device, model in enumerate(models):
            np.testing.assert_allclose(run.deployed(device).vector, model, rtol=0, atol=1e-5)
        self.assert_rows(run.rows, models)

    def assert_rows(self, rows: list[dict[str, Any]], models: Sequence[Any]) -> None:
        """Check each device's metrics against those of its expected model or flat weights."""
        models = [self.at(model) if isinstance(model, np.ndarray) else model for model in models]
        for row, model in zip(rows, models, strict=True):
            assert row["loss"] == pytest.approx(self.loss(model, row["device"]), abs=1e-5)
            assert row["accuracy"] == self.accuracy(model, row["device"])


@pytest.fixture(params=["softmax", "softmax_with_offset"], ids=["on_host", "in_graph"])
def softmax_either_way(request: pytest.FixtureRequest) -> TrainableModel:
    """Softmax regression with the gradient offset added on the host, and in the graph."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def twin(data: FederatedData, softmax: TrainableModel, numpy_softmax: Any, simulate: Callable[..., Run]) -> Twin:
    initial = Device(softmax, (data.x, data.y)).parameters()
    return Twin(data, numpy_softmax.of(*initial.tensors()), softmax, simulate)


@pytest.fixture
def small_twin(
    small_data: FederatedData, small_mlp: TrainableModel, numpy_perceptron: Any, simulate: Callable[..., Run]
) -> Twin:
    """The fleet of `small_data` with the perceptron of `small_mlp`."""
    initial = Device(small_mlp, (small_data.x, small_data.y)).parameters()
    return Twin(small_data, numpy_perceptron.from_flat(initial.vector), small_mlp, simulate)
