import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odt_sim import Device, Fleet, Strategy, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import InvocationError, SimulationError
from odt_sim.model.weights import Weights
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.versions import Version
from odt_sim.simulation.executors.job import Job, Task, Trained
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.sums import PIECE, add, join, mean, scaled
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.base import Update
from odt_sim.strategies.shared_parts.fedper import FedPer

PLAN = TrainingPlan(epochs=1, learning_rate=0.05)

VECTORS = arrays(np.float64, 3, elements=st.floats(-1e6, 1e6))


def trained(id, vector, weight):
    return Trained({"v": weight * vector}, {"v": None}, weight, [id], loss_sum=weight, loss_weight=weight, bytes_up=24)


@given(parts=st.lists(st.tuples(VECTORS, st.floats(0.1, 1e3)), min_size=1, max_size=20))
def test_mean_is_the_weighted_average_of_numpy(parts):
    joined = join(trained(i, vector, weight) for i, (vector, weight) in enumerate(parts))
    updates = mean(joined, participants=9)
    vectors, weights = zip(*parts, strict=True)
    expected = np.average(vectors, axis=0, weights=weights)
    np.testing.assert_allclose(updates.mean["v"], expected, rtol=1e-6, atol=1e-6)
    assert updates.mean["v"].dtype == np.float32
    assert updates.count == len(parts)
    assert joined.contributed == list(range(len(parts)))
    assert joined.bytes_up == 24 * len(parts)
    assert joined.loss_sum / joined.loss_weight == pytest.approx(1)


def test_means_and_scaled_tensors_without_axes_stay_arrays():
    """Numpy's arithmetic turns them into scalars, which later checks refuse."""
    parts = [Trained({"v": np.array(float(i))}, {"v": None}, 1.0, [i], single=True) for i in range(3)]
    for found in (mean(join(parts), participants=3).mean, scaled({"v": np.array(2.0, np.float32)}, 0.5)):
        assert isinstance(found["v"], np.ndarray)
        assert (found["v"].dtype, found["v"].tolist()) == (np.float32, 1.0)


@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (700, 600)])
def test_sum_has_the_bits_of_numpy_for_any_shape(shape):
    generator = np.random.default_rng(0)
    tensors = [generator.normal(size=shape[::-1]).astype(np.float32).T for _ in range(3)]  # Fortran's order
    parts = [Trained({"v": tensor}, {"v": None}, 3.0 + i, (i,), single=True) for i, tensor in enumerate(tensors)]
    first, second, third = (np.float64(3 + i) * tensor.astype(np.float64) for i, tensor in enumerate(tensors))
    np.testing.assert_array_equal(join(parts).sums["v"], first + second + third)
    np.testing.assert_array_equal(join([join(parts[:1]), join(parts[1:])]).sums["v"], first + (second + third))
    assert join(parts).sums["v"].shape == shape


@pytest.mark.parametrize("sizes", [(3, 1), (1, 3), (PIECE, 2 * PIECE)])
def test_updates_of_different_shapes_are_refused(sizes):
    parts = [Trained({"v": np.ones(size, np.float32)}, {"v": None}, 1.0, (i,)) for i, size in enumerate(sizes)]
    with pytest.raises(
        SimulationError, match=rf"update 'v': has shape \({sizes[1]},\) from device 1, but \({sizes[0]},\)"
    ):
        join(parts)


@given(parts=st.lists(VECTORS, min_size=2, max_size=12), cut=st.integers(1, 11))
def test_sum_of_blocks_is_the_sum_of_their_devices(parts, cut):
    parts = [trained(i, np.round(vector), 1.0) for i, vector in enumerate(parts)]  # whole numbers add exactly
    at_once, by_block = join(parts), join([join(parts[:cut]), join(parts[cut:])])
    np.testing.assert_array_equal(at_once.sums["v"], by_block.sums["v"])
    assert at_once.contributed == by_block.contributed


def test_sum_of_nothing_is_empty():
    assert join([]) == Trained()
    assert mean(join([Trained(excluded={3: "timed out"})]), participants=9).mean == {}
    parts = [Trained(excluded={3: "timed out"}), Trained(excluded={5: "update too large"})]
    assert join(parts).excluded == {3: "timed out", 5: "update too large"}


def single(id, vector, weight):
    return Trained({"v": vector}, {"v": None}, weight, [id], single=True, loss_sum=weight, loss_weight=weight)


@given(parts=st.lists(arrays(np.float32, 5), min_size=1, max_size=6))
def test_added_parts_have_the_bits_of_join_and_share_no_array(parts):
    """The arrays of a part may be overwritten once it is added."""
    total = Trained()
    with np.errstate(all="ignore"):
        expected = join(single(id, part.copy(), 3.0 + id) for id, part in enumerate(parts))
        for id, part in enumerate(parts):
            add(total, single(id, part, 3.0 + id))
            part[:] = 7
    np.testing.assert_array_equal(total.sums["v"], expected.sums["v"])
    assert total.contributed == list(range(len(parts)))
    assert total.weight == expected.weight


@pytest.fixture
def job(momentum, fleet_data, tmp_path):
    return lambda strategy, **changes: Job(
        **{
            "model": momentum,
            "data": fleet_data,
            "strategy": strategy,
            "plan": PLAN,
            "seed": 0,
            "storage": Folder(tmp_path),
            "fleet": Fleet(),
            **changes,
        }
    )


def zeros(model, batches):
    """Return devices with given numbers of batches of training examples."""
    sizes = np.array(batches) * model.batch_size
    x, y = np.zeros((sizes.sum(), *model.x.shape[1:]), np.float32), np.zeros(sizes.sum(), np.int32)
    ends = np.cumsum(sizes)
    offsets = np.stack([ends - sizes, ends, ends, ends], axis=1)
    return FederatedData("zeros", x, y, 4, np.arange(len(x)), offsets)


def test_cost_of_a_block_is_that_of_its_devices(job):
    plain, in_steps = job(FedAvg(), plan=TrainingPlan(epochs=3)), job(FedAvg(), plan=TrainingPlan(steps=2))
    data = plain.data
    examples = [len(data.train(id)) for id in range(5)]
    of_all = [len(data.train(id)) + len(data.validation(id)) + len(data.test(id)) for id in range(5)]
    cut = [(0, 2), (1,), (3, 4)]
    train, evaluate = ([Task(kind, 1, ids) for ids in cut] for kind in ("train", "evaluate"))
    assert plain.costs(train) == [sum(3 * examples[id] + 1 for id in ids) for ids in cut]
    assert plain.costs(evaluate) == [sum(of_all[id] + 1 for id in ids) for ids in cut]
    batch = plain.model.batch_size
    assert in_steps.costs(train) == [len(ids) * (2 * batch + 1) for ids in cut]
    assert plain.costs([]) == []


def alone(job, id, round):
    """Return a device as created by a worker, with its own interpreter."""
    rows = [(job.data.x[split(id)], job.data.y[split(id)]) for split in (job.data.train, job.data.validation)]
    test = job.data.x[job.data.test(id)], job.data.y[job.data.test(id)]
    return Device(job.model, *rows, test, seed=job.seed, id=id, round=round, plan=job.plan)


def row_of(device):
    """Return the metrics of a device."""
    validation = {f"validation_{name}": value for name, value in device.evaluate("validation").items()}
    train_examples = len(device.train_examples)
    return {"device": device.id, "train_examples": train_examples, **device.evaluate(), **validation}


def test_block_is_the_weighted_sum_of_its_devices(job, momentum):
    job = job(FedAvg())
    state = job.strategy.init(alone(job, 0, 0).parameters())
    block = Worker(job).run(Task("train", 1, (0, 2, 5)), state.broadcast)
    total = np.zeros(momentum.layout.size)
    for id in (0, 2, 5):
        device = alone(job, id, 1)
        device.train()
        total += len(device.train_examples) * (device.parameters() - state.weights).vector.astype(np.float64)
    np.testing.assert_array_equal(block.sums["weights"], total)
    assert block.weight == sum(job.data.train_sizes[[0, 2, 5]])
    assert block.contributed == [0, 2, 5]
    assert (block.stateful, block.excluded) == ({}, {})
    assert block.bytes_up == 3 * 4 * momentum.layout.size
    assert block.each == {}


def test_devices_beside_a_failing_one_train_as_alone(job):
    class Fails(FedAvg):
        def local(self, device, broadcast):
            update = super().local(device, broadcast)
            if device.id == 1:
                raise InvocationError("out of memory") from RuntimeError("out of memory")
            return update

    job = job(Fails())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    found = Worker(job).run(Task("train", 1, (0, 1, 2, 3)), broadcast)
    assert found.contributed == [0, 2, 3]
    assert found.excluded == {1: "failed in LiteRT: out of memory"}
    others = Worker(job).run(Task("train", 1, (0, 2, 3)), broadcast)
    np.testing.assert_array_equal(found.sums["weights"], others.sums["weights"])


def test_single_device_sends_unweighted_tensors(job):
    job = job(FedAvg())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    part = Worker(job).run(Task("train", 1, (2,)), broadcast)
    assert part.sums["weights"].dtype == np.float32
    total = join([part]).sums["weights"]
    np.testing.assert_array_equal(total, part.weight * part.sums["weights"].astype(np.float64))
    assert part.weight > 1


def test_task_for_each_device_gives_the_same_bits(job):
    job = job(FedPer())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    task = Task("train", 1, (1, 3, 4))
    whole = Worker(job).run(task, broadcast)
    parts = join(Worker(job).run(one, broadcast) for one in task.each())
    np.testing.assert_array_equal(whole.sums["weights"], parts.sums["weights"])
    assert whole.stateful == {1: 1, 3: 1, 4: 1}  # one file
    assert parts.stateful == {1: 1, 3: 3, 4: 4}
    assert whole.loss_sum == parts.loss_sum


def test_state_of_a_device_is_there_in_its_next_round(job, momentum):
    job = job(Local())
    worker = Worker(job)
    worker.run(Task("train", 1, (4,)), {})
    worker.run(Task("train", 3, (4,), {4: Version(1, 4)}), {})
    [row] = worker.run(Task("evaluate", 3, (4,), {4: Version(3, 4)}), {})
    first, second = alone(job, 4, 1), alone(job, 4, 3)
    first.train()
    second.restore(first.parameters())
    second.restore_optimizer_state(first.optimizer_state())
    second.train()
    assert row == row_of(second)


def test_cleared_state_stays_cleared(job, user):
    worker = Worker(job(user.KeepsForARound()))
    first = worker.run(Task("train", 1, (4,)), {})
    second = worker.run(Task("train", 2, (4,), {4: Version(1, 4)}), {})
    assert first.stateful == second.stateful == {4: 4}
    rows = [worker.run(Task("final", 2, (4,), {4: Version(round, 4)}), {})[0] for round in (1, 2)]
    assert rows[0]["state_bytes"] > rows[1]["state_bytes"] == 0
    assert worker.run(Task("train", 2, (3,)), {}).stateful == {}  # it never had a state


def test_evaluation_keeps_no_state(job, tmp_path):
    class Trains(FedAvg):
        def deploy(self, device, broadcast):
            device.train(epochs=3)
            device.state["steps"] = np.ones(1)
            device.records["epochs"] = 3
            return device.parameters()

    job = job(Trains())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    worker = Worker(job)
    task = Task("evaluate", 1, (0, 1))
    assert worker.run(task, broadcast) == worker.run(task, broadcast)
    assert [row["epochs"] for row in worker.run(task, broadcast)] == [3, 3]
    assert not list(tmp_path.iterdir())


def test_records_of_local_are_refused(job):
    class Records(FedAvg):
        def local(self, device, broadcast):
            device.records["rounds_done"] = 1
            return super().local(device, broadcast)

    job = job(Records())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    with pytest.raises(
        SimulationError, match=r"device\.records\['rounds_done'\] is set in local, .*; set it in deploy"
    ):
        Worker(job).run(Task("train", 1, (0,)), broadcast)


def test_final_evaluation_adds_the_global_model(job):
    initial = alone(job(FedAvg()), 0, 0).parameters()
    metrics = {"accuracy", "loss", "balanced_accuracy"}  # without AUC: these examples are of one class
    shared = {f"global_{metric}" for metric in metrics}
    for strategy, columns in ((FedAvg(), shared), (FedPer(), set()), (Local(), set())):
        worker, broadcast = Worker(job(strategy)), strategy.init(initial).broadcast
        [due] = worker.run(Task("evaluate", 1, (0,)), broadcast)
        [final] = worker.run(Task("final", 1, (0,)), broadcast)
        assert {name for name in final if name.startswith("global_")} == columns
        assert {name: final[name] for name in due} == due
    assert due == row_of(alone(job(FedAvg()), 0, 0))


@pytest.mark.parametrize(
    ("loss", "tensor", "weight", "state", "reason"),
    [
        (math.nan, 0, 1, 0, "loss not finite"),
        (math.inf, 0, 1, 0, "loss not finite"),
        (0, math.nan, 1, 0, "update not finite"),
        (0, -math.inf, 1, 0, "update not finite"),
        (0, 0, math.nan, 0, "weight not finite or not above 0"),
        (0, 0, math.inf, 0, "weight not finite or not above 0"),
        (0, 0, 0, 0, "weight not finite or not above 0"),
        (0, 0, -1, 0, "weight not finite or not above 0"),
        (0, 0, 1, math.nan, "state not finite"),
        (0, 2e6, 1, 0, "update too large"),
        (0, -1e300, 1, 0, "update too large"),
    ],
)
def test_unusable_update_is_excluded_and_not_kept(job, tmp_path, loss, tensor, weight, state, reason):
    class Breaks(FedAvg):
        def local(self, device, broadcast):
            device.state["kept"] = np.array([state if device.id == 1 else 0.0])
            numbers = (loss, tensor, weight) if device.id == 1 else (0.5, 2.0, 3.0)
            return Update({"v": np.array([numbers[1]])}, numbers[2], np.array([numbers[0]], np.float32))

    block = Worker(job(Breaks())).run(Task("train", 1, (0, 1)), {})
    assert (block.contributed, block.excluded, block.stateful) == ([0], {1: reason}, {0: 0})
    assert block.sums["v"].tolist() == [6.0]
    assert (block.loss_sum, block.loss_weight) == (1.5, 3.0)
    assert [path.name for path in tmp_path.rglob("*.safetensors")] == ["0.1.safetensors"]


def test_device_without_a_step_has_no_loss(job):
    class Idle(FedAvg):
        def local(self, device, broadcast):
            return Update({}, 2, np.zeros(0, np.float32))

    block = Worker(job(Idle())).run(Task("train", 1, (0,)), {})
    assert (block.weight, block.loss_sum, block.loss_weight) == (2, 0, 0)


def test_single_updates_are_kept_if_the_strategy_asks(job):
    class Keeps(FedAvg):
        keeps_updates = True

    job = job(Keeps())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    block = Worker(job).run(Task("train", 1, (0, 2)), broadcast)
    assert list(block.each) == [0, 2]
    updates = mean(block, participants=9)
    both = [update.tensors["weights"].vector.astype(np.float64) * update.weight for update in updates.each.values()]
    np.testing.assert_array_equal(updates.mean["weights"].vector, (sum(both) / updates.weight).astype(np.float32))
    assert isinstance(updates.mean["weights"], Weights)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("Raises", "train", r"strategy Raises: failed on device 4 in round 2 with KeyError: 'mu' \(.*strategies\.py:\d+\)"),
        ("RaisesDeepInNumpy", "train", r"failed on device 3 in round 2 with ValueError: .*user_strategies.py:\d+\)"),
        ("ForgetsToReturn", "train", r"failed on device 3 in round 2 with TypeError: local returned NoneType, expected"),
        ("SendsAFloat", "train", r"device 3 .* TypeError: the update's 'loss' is a float, expected Weights or a numpy array"),
        ("SendsWeightsAlone", "train", r"device 3 .* TypeError: the update's tensors are a Weights, expected"),
        ("SendsWeightOfAList", "train", r"device 3 .* TypeError: the update's weight is a list, expected a number"),
        ("SendsText", "train", r"device 3 .* TypeError: the update's 'label' has the dtype <U3, expected"),
        ("KeepsByNumber", "train", r"device 3 .* TypeError: device\.state's 7 has a name of type int, expected text"),
        ("KeepsAList", "train", r"device 3 .* TypeError: device\.state's 'seen' is a list, expected Weights or a numpy"),
        ("ExitsInLocal", "train", r"failed on device 3 in round 2 with SystemExit: no data \(.*user_strategies\.py:\d+\)"),
        ("DeploysAnArray", "evaluate", r"failed on device 3 after round 2 with TypeError: deploy returned ndarray, expected"),
        ("RaisesInDeploy", "evaluate", r"failed on device 3 after round 2 with ValueError: two lines \(.*strategies.py:"),
    ],
)  # fmt: skip
def test_error_of_a_strategy_is_one_line(job, user, name, kind, message):
    job = job(getattr(user, name)())
    broadcast = job.strategy.init(alone(job, 0, 0).parameters()).broadcast
    with pytest.raises(SimulationError, match=message) as caught:
        Worker(job).run(Task(kind, 2, (3, 4)), broadcast)
    assert "\n" not in str(caught.value)


def test_trained_weights_in_place_of_their_change_are_refused_in_the_first_round(job, user):
    own = job(user.SendsTheTrainedWeights())
    initial = alone(own, 0, 0).parameters()
    with pytest.raises(SimulationError, match=r"are the trained weights, but aggregate adds .* return their change"):
        Worker(own).run(Task("train", 1, (3, 4)), {"weights": initial})
    zero = Weights.zeros(initial.layout)  # the change from zero is the trained weights
    assert Worker(own).run(Task("train", 1, (3, 4)), {"weights": zero}).contributed == [3, 4]
    averaged = job(user.AveragesTheTrainedWeights())
    assert Worker(averaged).run(Task("train", 1, (3, 4)), {"weights": initial}).contributed == [3, 4]


def test_error_of_odt_sim_within_a_strategy_names_the_strategy(job):
    class Misuses(FedAvg):
        def local(self, device, broadcast):
            return device.parameters()["no such"]

    with pytest.raises(
        SimulationError, match=r"strategy Misuses: .*device 0 in round 1 .*ModelError: .*'no such'.*test_worker"
    ):
        Worker(job(Misuses())).run(Task("train", 1, (0,)), {})


def test_base_class_is_federated_averaging(job):
    task = Task("train", 1, (0, 1))
    sums = []
    for strategy in (Strategy(), FedAvg()):
        broadcast = strategy.init(alone(job(strategy), 0, 0).parameters()).broadcast
        sums.append(Worker(job(strategy)).run(task, broadcast).sums["weights"])
    np.testing.assert_array_equal(*sums)
