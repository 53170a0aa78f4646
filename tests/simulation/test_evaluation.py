"""The final evaluation of a device, compared with a computation by hand."""

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orders import orders

from odt_sim import Device, Fleet, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.predictor import Predictor
from odt_sim.errors import ModelError, SimulationError
from odt_sim.metrics.tasks import TASK_METRICS
from odt_sim.model.weights import Weights
from odt_sim.persistence.storage import storage_at
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.cohort import choose_unseen
from odt_sim.simulation.run.evaluation import COMMON, CommonExamples, Evaluation
from odt_sim.simulation.run.exclusion import Excluded
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.base import Strategy
from odt_sim.strategies.clusters.knn_per import KNNPer

PLAN = TrainingPlan(1, 0.05)
METRICS = TASK_METRICS["classification"]


def device_of(model, data, id, test=None):
    parts = (data.train(id), data.validation(id), data.test(id) if test is None else test)
    return Device(model, *((data.x[part], data.y[part]) for part in parts), seed=0, id=id, round=3, plan=PLAN)


def measured(model, data, strategy, id, *, fleet=None, final=True, state=None):
    device = device_of(model, data, id)
    device.state = dict(state or {})
    broadcast = strategy.init(device.parameters()).broadcast
    job = Job(model, data, strategy, PLAN, 0, storage_at("unused"), fleet or Fleet())
    return Evaluation(job).row(device, broadcast, broadcast, final=final)


def figures(row, prefix):
    """Return the metrics with a prefix."""
    return {metric: row[f"{prefix}_{metric}"] for metric in METRICS if f"{prefix}_{metric}" in row}


def known(evaluated):
    return {metric: evaluated[metric] for metric in METRICS if metric in evaluated}


# --- the examples of others --------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_common_examples_are_test_examples_with_their_owners(sizes, seed):
    data = fleet_of(sizes)
    common = CommonExamples.drawn(data, seed)
    assert len(set(common.rows.tolist())) == len(common.rows) == min(COMMON, sum(sizes))
    for device in range(len(sizes)):
        own = set(data.test(device).tolist())
        assert set(common.rows[common.owners == device].tolist()) <= own
        assert not own & set(common.of_others(device).tolist())
        assert len(common.of_others(device)) == (common.owners != device).sum()


def fleet_of(sizes):
    """Return devices with one training and one validation example, and test examples in shuffled rows."""
    ends = np.cumsum([0, *(part for size in sizes for part in (1, 1, size))])
    offsets = np.array([ends[3 * i : 3 * i + 4] for i in range(len(sizes))])
    indices = np.random.default_rng(1).permutation(ends[-1])
    return FederatedData("numbers", np.zeros((ends[-1], 1)), np.zeros(ends[-1]), 2, indices, offsets)


def test_common_examples_are_drawn_evenly():
    data = fleet_of([300, 100, 100])
    draws = [CommonExamples.drawn(data, seed) for seed in range(40)]
    assert len({draw.rows.tobytes() for draw in draws}) == 40
    assert CommonExamples.drawn(data, 7).rows.tobytes() == draws[7].rows.tobytes()
    of_first = np.mean([(draw.owners == 0).mean() for draw in draws])
    assert of_first == pytest.approx(0.6, abs=0.03)  # about six standard deviations


# --- one device --------------------------------------------------------------------------------------------------------


def test_device_is_evaluated_on_its_own_splits_and_on_others(momentum, fleet_data):
    row = measured(momentum, fleet_data, FedAvg(), 2)
    others = np.concatenate([fleet_data.test(id) for id in range(7) if id != 2])  # fewer than 256: all of them
    device = device_of(momentum, fleet_data, 2)
    assert {name: row[name] for name in known(device.evaluate())} == known(device.evaluate())
    for part in ("train", "validation"):
        assert figures(row, part) == known(device.evaluate(part))
        assert row[f"{part}_examples"] == device.evaluate(part)["examples"]
    elsewhere = known(device_of(momentum, fleet_data, 2, np.sort(others)).evaluate())
    assert figures(row, "others") == pytest.approx(elsewhere)
    assert figures(row, "global") == known(device.evaluate())
    assert "others_examples" not in row
    assert not any(name.startswith("adapted_") for name in row)


def test_global_model_has_its_own_columns(momentum, fleet_data):
    """The deployed model is reported even if the global one is better."""
    rows = [measured(momentum, fleet_data, Trained(), id) for id in range(7)]
    for id, row in enumerate(rows):
        assert figures(row, "global") == known(device_of(momentum, fleet_data, id).evaluate())
        device = device_of(momentum, fleet_data, id)
        device.train(epochs=60)
        assert known(row) == known(device.evaluate())
    assert {row["loss"] < row["global_loss"] for row in rows} == {True, False}


def test_final_columns_are_measured_once(momentum, fleet_data):
    due, final = (measured(momentum, fleet_data, FedAvg(), 2, final=final) for final in (False, True))
    assert due == {name: final[name] for name in due}
    more = {"train", "others", "global", "deploy", "state"}
    assert {name.partition("_")[0] for name in final.keys() - due.keys()} == more


def test_fleet_of_one_has_no_columns_of_others(momentum, spread, clouds):
    assert figures(measured(momentum, spread(clouds, 1), FedAvg(), 0), "others") == {}


def test_personal_model_scores_lower_on_others(small_mlp, fleet_data):
    """Long training on own examples improves their accuracy and lowers that of others."""
    fleet = sorted_by_class(fleet_data)
    own, mixed = measured(small_mlp, fleet, Trained(), 0), measured(small_mlp, fleet, FedAvg(), 0)
    assert own["accuracy"] == 1 > mixed["accuracy"]
    assert own["others_accuracy"] < 0.1
    assert own["others_loss"] > mixed["others_loss"]


class Trained(Strategy):
    def deploy(self, device, broadcast):
        super().deploy(device, broadcast)
        device.train(epochs=60)
        return device.parameters()


def sorted_by_class(data):
    order = np.argsort(data.y, kind="stable")
    bounds = np.searchsorted(data.y[order], [0, 1, 2, 3])
    offsets = np.array([[start, start + 10, start + 15, end] for start, end in pairwise(bounds)])
    return FederatedData("one class each", data.x, data.y, 3, order, offsets)


def test_state_bytes_are_those_before_deployment(momentum, fleet_data):
    class Forgets(FedAvg):
        def deploy(self, device, broadcast):
            device.state = {}
            return super().deploy(device, broadcast)

    state = {"own": device_of(momentum, fleet_data, 2).parameters(), "count": np.zeros(3, np.int64)}
    row = measured(momentum, fleet_data, Forgets(), 2, state=state)
    assert row["state_bytes"] == 4 * momentum.layout.size + 24
    assert measured(momentum, fleet_data, FedAvg(), 2)["state_bytes"] == 0


def test_device_with_outputs_that_are_not_finite_has_no_figures(momentum, fleet_data):
    class Huge(FedAvg):
        def deploy(self, device, broadcast):
            weights = super().deploy(device, broadcast)
            return Weights(weights.layout, np.full_like(weights.vector, 3e38))

    assert measured(momentum, fleet_data, Huge(), 2) == Excluded("test loss not finite")


def test_deploy_calls_exclude_the_evaluation(momentum, fleet_data):
    steps, batches = -(-fleet_data.train_sizes[2] // 4), -(-len(fleet_data.validation(2)) // 4)
    row = measured(momentum, fleet_data, FedAvgFineTune(3), 2)
    assert (row["deploy_train_calls"], row["deploy_infer_calls"]) == (3 * steps, 4 * batches)
    row = measured(momentum, fleet_data, FedAvg(), 2)
    assert (row["deploy_train_calls"], row["deploy_infer_calls"]) == (0, 0)


# --- unseen devices ----------------------------------------------------------------------------------------------------


def unseen():
    (device,) = choose_unseen(7, 1, seed=0).tolist()
    return device


@pytest.mark.parametrize("steps", [1, 7])
def test_unseen_device_adapts_for_some_steps(momentum, fleet_data, steps):
    row = measured(momentum, fleet_data, FedAvg(), unseen(), fleet=Fleet(unseen=1, adaptation_steps=steps))
    device = device_of(momentum, fleet_data, unseen())
    train, losses = device.train_examples, []
    for order in islice(orders(device.seed, device.id, device.round, len(train)), 7):  # more epochs than the steps are
        x, y = train.take(order)
        starts = range(0, len(x), 4)
        losses += [device.train_batch(x[i : i + 4], y[i : i + 4]) for i in starts if len(losses) < steps]
    assert len(losses) == steps
    assert figures(row, "adapted") == known(device.evaluate())
    assert figures(row, "global") == known(device_of(momentum, fleet_data, unseen()).evaluate())


def test_adaptation_starts_with_fresh_slots_and_no_offset(adam_with_offset, fleet_data):
    class Prepared(FedAvg):
        def deploy(self, device, broadcast):
            super().deploy(device, broadcast)
            device.set_gradient_offset(None, 5.0)
            device.train(epochs=2)
            return device.parameters()

    row = measured(adam_with_offset, fleet_data, Prepared(), unseen(), fleet=Fleet(unseen=1, adaptation_steps=1))
    device, fresh = (device_of(adam_with_offset, fleet_data, unseen()) for _ in range(2))
    fresh.restore(Prepared().deploy(device, FedAvg().init(device.parameters()).broadcast))
    x, y = fresh.train_examples.take(fresh.random("batches", 0).permutation(len(fresh.train_examples)))
    fresh.train_batch(x[:4], y[:4])
    assert figures(row, "adapted") == known(fresh.evaluate())
    assert figures(row, "adapted") != {name: row[name] for name in figures(row, "adapted")}


def test_seen_devices_do_not_adapt(momentum, fleet_data):
    for id, steps in (((unseen() + 1) % 7, 5), (unseen(), 0)):
        row = measured(momentum, fleet_data, FedAvg(), id, fleet=Fleet(unseen=1, adaptation_steps=steps))
        assert figures(row, "adapted") == {}


def test_correction_applies_to_the_deployed_model_only(grouped, fleet_data):
    """kNN-Per's correction holds on examples of others, and ends when the model changes."""
    fleet = Fleet(unseen=6, adaptation_steps=1)
    found = (measured(grouped, fleet_data, KNNPer(), id, fleet=fleet) for id in choose_unseen(7, 6, seed=0).tolist())
    knn = next(row for row in found if row["neighbour_share"] > 0)
    plain = measured(grouped, fleet_data, FedAvg(), knn["device"], fleet=fleet)
    assert figures(knn, "others") != figures(plain, "others")
    assert figures(knn, "adapted") == figures(plain, "adapted")
    assert figures(knn, "global") == figures(plain, "global")


class Answers(Predictor):
    """A model that answers by a function of the device and the rows."""

    nbytes = 0

    def __init__(self, device, function):
        self.device, self.function = device, function

    def predict(self, x):
        return self.function(self.device, x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda device, x: {}["p"], r"KeyError: 'p' \(.*test_evaluation\.py:\d+\)"),
        (lambda device, x: device.infer(x).tolist(), "TypeError: it returned list, expected a numpy array"),
        (lambda device, x: device.infer(x).T, r"ValueError: it returned the shape \[3, \d\], expected \[\d, 3\], as"),
    ],
)
@pytest.mark.parametrize("corrects", [False, True])
def test_error_of_deployed_code_is_one_line(grouped, fleet_data, function, message, corrects):
    class Deploys(FedAvg):
        def deploy(self, device, broadcast):
            weights = super().deploy(device, broadcast)
            if not corrects:
                return Answers(device, function)
            device.correction = lambda embeddings, outputs: function(Holder(outputs), None)
            return weights

    class Holder:
        def __init__(self, outputs):
            self.infer = lambda x: outputs

    part = "correction" if corrects else "predictor Answers"
    with pytest.raises(SimulationError, match=f"^device 2: the {part} failed with {message}"):
        measured(grouped, fleet_data, Deploys(), 2)


def test_correction_without_embeddings_says_what_is_missing(momentum, fleet_data):
    class Corrects(FedAvg):
        def deploy(self, device, broadcast):
            device.correction = lambda embeddings, outputs: outputs
            return super().deploy(device, broadcast)

    with pytest.raises(ModelError, match=r"has no signature 'embed'; export the model with it, for example by needs"):
        measured(momentum, fleet_data, Corrects(), 2)


# --- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["accuracy", "train_accuracy", "others_n", "adapted_loss", "state_bytes", "deploy_x"])
def test_record_with_the_name_of_a_measured_column_is_refused(momentum, fleet_data, name):
    class Records(FedAvg):
        def deploy(self, device, broadcast):
            device.records[name] = 1.0
            return super().deploy(device, broadcast)

    with pytest.raises(SimulationError, match=rf"device\.records\['{name}'\] has the name of a built-in metric"):
        measured(momentum, fleet_data, Records(), 2, final=False)
