import json
import math
import traceback
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from odt_sim import Device, Fleet, TrainingPlan
from odt_sim._support.user_code import user_frames
from odt_sim.aggregators.median import Median
from odt_sim.data import by_user, federate, iid
from odt_sim.data.dataset import Dataset
from odt_sim.errors import ConfigurationError, DataError, SimulationError, StrategyError
from odt_sim.model.weights import Weights
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.run.cohort import blocks, choose_cohort, choose_unseen
from odt_sim.simulation.run.run_warnings import run_warnings
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.fedprox import FedProx
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.shared_parts.fedper import FedPer
from odt_sim.strategies.shared_parts.head_only import HeadOnly


def test_simulation_shows_what_runs_where(simulation):
    shown = repr(simulation(Local(), "runs/a"))
    assert shown == f"Simulation({Local()!r}, 7 devices, 3 rounds, seed 0, 'runs/a')"


COLUMNS = [
    *(
        "round",
        "strategy",
        "devices",
        "excluded",
        "excluded_devices",
        "excluded_reasons",
        "quarantined",
        "newly_quarantined",
        "stragglers",
        "train_loss",
        "bytes_down",
    ),
    *("bytes_up", "train_calls", "infer_calls"),
]
EVALUATION = [
    *("accuracy", "accuracy_unweighted", "accuracy_unseen", "validation_accuracy"),
    *("loss", "loss_unweighted", "loss_unseen", "validation_loss"),
    *("balanced_accuracy", "balanced_accuracy_unweighted", "balanced_accuracy_unseen", "validation_balanced_accuracy"),
    *("auc", "auc_unweighted", "validation_auc"),  # the unseen device's test examples are of one class
    "validation_devices",
]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def four(simulation, tmp_path_factory):
    """Return the folder of a run of FedAvg: 4 rounds of 5 of 6 seen devices, evaluated every second round."""
    folder = tmp_path_factory.mktemp("four")
    simulation(FedAvg(), folder, rounds=4, fleet=Fleet(cohort=5, unseen=1)).run()
    return folder


def with_loss(model, loss, delta):
    output = replace(model.outputs[0], loss=loss, delta=delta)
    return replace(model, manifest=replace(model.manifest, outputs=(output,)))


X = np.ones((20, 6), np.float32)
LARGE = np.linspace(180, 181, 120, dtype=np.float32).reshape(20, 6)
IMAGES = np.tile(np.linspace(0, 1, 6, dtype=np.float32), (20, 1))
USERS = np.repeat(np.arange(4), 10)
LOADS = np.float32([0, 0.5, 1, 100])[USERS][:, None] * np.ones(
    (40, 2), np.float32
)  # a user without any load is no reason
TOO_LARGE = "data d: y has values of about 5e+03, for which {} hardly trains at usual learning rates"
MAGNITUDE = "data d: x has features of magnitude up to 18"


@pytest.mark.parametrize(
    ("x", "y", "more", "change", "warning"),
    [
        (X, 5000 * X[:, :2], {}, {"loss": ("huber", 1.0)}, TOO_LARGE.format("huber")),
        (X, 50 * X[:, :2], {}, {"loss": ("huber", 1.0)}, None),
        (X, 5000 * X[:, :2], {}, {"loss": ("huber", 1000.0)}, None),
        (X, 5000 * X[:, :2], {}, {"loss": ("mean_absolute_error", 1.0)}, TOO_LARGE.format("mean_absolute_error")),
        (X, 5000 * X[:, :2], {}, {"loss": ("mean_squared_error", 1.0)}, None),  # its gradient grows with the error
        (
            np.ones((40, 6), np.float32),
            LOADS,
            {"users": USERS},
            {},
            "data d: y is of about 0.6 on some devices and 80.2 on others, so the largest dominate the training",
        ),
        (np.ones((40, 6), np.float32), np.minimum(LOADS, 5), {"users": USERS}, {}, None),
        (
            IMAGES,
            X[:, :2],
            {},
            {"scale": 1 / 255},
            "data d: x is at most 1, but the model first multiplies it by 0.00392",
        ),
        (5 * IMAGES, X[:, :2], {}, {"scale": 1 / 255}, None),
        (IMAGES, X[:, :2], {}, {"scale": 1.0}, None),
        (LARGE, LARGE[:, :2] / 180, {}, {}, MAGNITUDE),
        (LARGE, LARGE[:, :2] / 180, {"standardize": True}, {}, None),
        (LARGE, LARGE[:, :2] / 180, {"standardize": True}, {"method": "block"}, None),  # which leaves out examples
        (LARGE / 20, LARGE[:, :2] / 180, {}, {}, None),
    ],
)
def test_data_that_hardly_trains_is_warned_of(x, y, more, change, warning, regression, simulation, tmp_path):
    by = by_user if "users" in more else iid
    devices, method = None if "users" in more else 2, change.get("method", "random")
    data = federate(Dataset("d", x, y, **more), by, devices, 0, method=method, gap=1)
    model = with_loss(regression, *change["loss"]) if "loss" in change else regression
    model = replace(model, scales={"": change["scale"]}) if "scale" in change else model
    job = replace(simulation(FedAvg(), tmp_path).job, data=data, model=model)
    expected = [] if warning is None else [warning]
    assert [each[: len(warning or "")] for each in run_warnings(job, own_examples=False)] == expected


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"fleet": Fleet(unseen=3)}, None),
        (
            {"fleet": Fleet(unseen=4)},
            "fleet.unseen: 4 of 7 devices never train, only 3 do; set a smaller fleet.unseen, or 0 to train all",
        ),
        ({"strategy": FedPer()}, "strategy fedper: shares only parameters that are frozen in the model frozen"),
        ({"strategy": FedAvg()}, None),
        ({"strategy": HeadOnly()}, None),
    ],
)
def test_devices_that_hardly_learn_from_others_are_warned_of(change, warning, simulation, frozen, tmp_path):
    if "strategy" in change:
        change = {**change, "model": frozen}
    job = replace(simulation(FedAvg(), tmp_path).job, **change)
    expected = [] if warning is None else [warning]
    assert [each[: len(warning or "")] for each in run_warnings(job, own_examples=True)] == expected


def test_rounds_have_a_line_each(four):
    rounds = lines(four / "rounds.jsonl")
    assert [row["round"] for row in rounds] == [1, 2, 3, 4]
    for row in rounds:
        assert list(row) == COLUMNS + ["seconds"] + (EVALUATION if row["round"] % 2 == 0 else [])
        assert (row["strategy"], row["devices"], row["excluded"], row["excluded_devices"]) == ("fedavg", 5, 0, [])
        assert row["seconds"] > 0
    assert rounds[-1]["train_loss"] < rounds[0]["train_loss"]
    assert rounds[-1]["loss"] < rounds[1]["loss"]


def test_named_devices_take_no_part_in_training(simulation, tmp_path):
    named = Fleet(unseen=[np.int64(5), 2])
    summary = simulation(FedAvg(), fleet=named, directory=tmp_path / "run", rounds=1).run()
    assert [row["device"] for row in lines(tmp_path / "run" / "devices.jsonl") if not row["seen"]] == [2, 5]
    assert (summary.unseen, summary.settings["fleet.unseen"]) == (2, "[2, 5]")
    assert lines(tmp_path / "run" / "rounds.jsonl")[0]["devices"] == 5


def test_bytes_are_the_size_of_the_weights(four, momentum):
    for row in lines(four / "rounds.jsonl"):
        assert row["bytes_down"] == row["bytes_up"] == 5 * 4 * momentum.layout.size


def test_calls_are_counted_over_the_cohort(four, fleet_data):
    """FedAvg trains one epoch in batches of 4, without inference."""
    seen = np.setdiff1d(np.arange(7), choose_unseen(7, 1, seed=0))
    for row in lines(four / "rounds.jsonl"):
        cohort = choose_cohort(seen, 5, 0, row["round"])
        assert row["train_calls"] == sum(math.ceil(size / 4) for size in fleet_data.train_sizes[cohort])
        assert row["infer_calls"] == 0
    summary = json.loads((four / "summary.json").read_text())
    assert summary["train_calls"] == sum(row["train_calls"] for row in lines(four / "rounds.jsonl"))
    assert [summary[key] for key in ("infer_calls", "deploy_train_calls", "deploy_infer_calls", "state_bytes")] == [
        0
    ] * 4


def test_summary_counts_the_rounds_to_a_target(simulation, tmp_path):
    summary = simulation(FedAvg(), tmp_path, evaluate_every=1, target=0.4).run()
    reached = [row["round"] for row in lines(tmp_path / "rounds.jsonl") if row["accuracy"] >= 0.4]
    assert (summary["target"], summary["rounds_to_target"]) == (0.4, reached[0])
    assert simulation(FedAvg(), tmp_path, evaluate_every=1, target=1.0).run(resume=True)["rounds_to_target"] is None


def test_devices_have_a_line_each(four, fleet_data):
    devices = lines(four / "devices.jsonl")
    assert [row["device"] for row in devices] == list(range(7))
    [unseen] = choose_unseen(7, 1, seed=0)
    assert [row["device"] for row in devices if not row["seen"]] == [unseen]
    assert [row["train_examples"] for row in devices] == fleet_data.train_sizes.tolist()
    assert [row["examples"] for row in devices] == [len(fleet_data.test(i)) for i in range(7)]
    for row in devices:  # FedAvg deploys the global model
        assert (row["accuracy"], row["loss"]) == (row["global_accuracy"], row["global_loss"])
        assert row["local_accuracy"] is row["local_loss"] is row["local_auc"] is None
        assert row["auc"] == row["global_auc"]
    assert [row["device"] for row in devices if row["auc"] is None] == [
        i for i in range(7) if len(np.unique(fleet_data.y[fleet_data.test(i)])) == 1
    ]


def test_run_folder_holds_the_documented_files(four, momentum):
    summary = json.loads((four / "summary.json").read_text())
    assert (summary["strategy"], summary["rounds"], summary["devices"], summary["unseen"]) == ("fedavg", 4, 7, 1)
    assert (four / "initial.tflite").read_bytes() == momentum.content
    assert summary["reported_round"] in (2, 4)
    commits = [
        f"checkpoint/server.{round}.safetensors" for round in (2, 3, 4)
    ]  # the best before the last, and the last two
    records = ["devices.jsonl", "initial.tflite", "model.tflite", "rounds.jsonl", "summary.json"]
    assert list(contents(four)) == [".lock", *commits, "code.json", *records]


def test_reported_round_has_the_figures_of_the_devices(four):
    devices = [row for row in lines(four / "devices.jsonl") if row["seen"]]
    reported = json.loads((four / "summary.json").read_text())["reported_round"]
    (line,) = (row for row in lines(four / "rounds.jsonl") if row["round"] == reported)
    for part in ("", "validation_"):
        weights = [row[f"{part}examples"] for row in devices]
        mean = np.average([row[f"{part}accuracy"] for row in devices], weights=weights)
        assert line[f"{part}accuracy"] == pytest.approx(mean)
    assert line["loss_unweighted"] == pytest.approx(np.mean([row["loss"] for row in devices]))
    assert line["validation_devices"] == len(devices) == 6


def test_two_rounds_of_fedavg_equal_a_computation_by_hand(momentum, fleet_data, results, tmp_path):
    fleet, plan = Fleet(cohort=4, unseen=1), TrainingPlan(epochs=2, learning_rate=0.05)
    found = results(FedAvg(), tmp_path, rounds=2, fleet=fleet, plan=plan)
    weights = device_at(momentum, fleet_data, 0, 0).parameters()
    seen = np.setdiff1d(np.arange(7), choose_unseen(7, 1, seed=0))
    for round in (1, 2):
        sums = []
        for block in blocks(choose_cohort(seen, 4, 0, round).tolist()):
            total = np.zeros(weights.layout.size)
            for id in block:
                device = device_at(momentum, fleet_data, id, round)
                device.restore(weights)
                device.train(epochs=2, learning_rate=0.05)
                change = device.parameters() - weights
                total = total + float(len(device.train_examples)) * change.vector.astype(np.float64)
            sums.append(total)
        assert len(sums) == 2
        size = sum(fleet_data.train_sizes[choose_cohort(seen, 4, 0, round)])
        weights = weights + Weights(weights.layout, ((sums[0] + sums[1]) / size).astype(np.float32))
    np.testing.assert_array_equal(found.tensors["broadcast.weights"], weights.vector)


def device_at(model, data, id, round):
    rows = [(data.x[part(id)], data.y[part(id)]) for part in (data.train, data.validation, data.test)]
    return Device(model, *rows, seed=0, id=id, round=round)


@pytest.mark.parametrize(
    ("rounds", "every", "due"),
    [(5, 2, [2, 4, 5]), (3, None, [1, 2, 3]), (2, 5, [2]), (25, None, [*range(2, 25, 2), 25])],
)
def test_rounds_in_which_evaluation_is_due(simulation, tmp_path, rounds, every, due):
    simulation(
        Local(), tmp_path, rounds=rounds, evaluate_every=every, fleet=Fleet(cohort=1), plan=TrainingPlan(0)
    ).run()
    assert [row["round"] for row in lines(tmp_path / "rounds.jsonl") if "accuracy" in row] == due


def test_local_sends_nothing_and_is_its_own_baseline(results, tmp_path):
    found = results(Local(), tmp_path)
    assert {row["bytes_down"] + row["bytes_up"] for row in found.rounds} == {0}
    for row in map(json.loads, found.devices.splitlines()):
        assert (row["local_accuracy"], row["local_loss"]) == (row["accuracy"], row["loss"])
        assert row["global_accuracy"] is None
    assert found.summary["fraction_hurt_local"] == 0


def test_fedper_sends_all_but_the_head(results, momentum, tmp_path):
    body = momentum.layout.select(lambda parameter: parameter.group != "head").size
    assert 0 < body < momentum.layout.size
    found = results(FedPer(), tmp_path)
    assert {row["bytes_up"] for row in found.rounds} == {6 * 4 * body}
    assert found.tensors["broadcast.weights"].size == body


def test_records_of_a_strategy_are_in_the_devices_lines(results, tmp_path):
    rows = [json.loads(line) for line in results(FedAvgFineTune(2), tmp_path).devices.splitlines()]
    assert {row["fine_tune_epochs"] for row in rows} <= {0, 1, 2}


def test_strategy_averages_arrays_and_gets_every_update(results, user, tmp_path):
    found = results(user.Counts(), tmp_path, rounds=1)
    seen = found.tensors["private.devices"]
    assert seen.tolist() == sorted(set(range(7)) - set(choose_unseen(7, 1, seed=0).tolist()))
    sizes = [row["train_examples"] for row in map(json.loads, found.devices.splitlines()) if row["seen"]]
    expected = [np.average(seen, weights=sizes), 1]
    np.testing.assert_allclose(found.tensors["private.mean"], expected, rtol=1e-6)
    assert found.tensors["private.sizes"].tolist() == seen.tolist()  # device 3 sent 3 numbers, which have no mean


def test_regression_is_reported_by_errors(regression, simulation, tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 6)).astype(np.float32)
    data = federate(Dataset("plane", x, (x @ random.normal(size=(6, 2))).astype(np.float32)), iid, 4, seed=0)
    summary = simulation(FedAvg(), tmp_path, model=regression, data=data, rounds=5).run()
    assert summary["task"] == "regression"
    first, *_, last = (row for row in lines(tmp_path / "rounds.jsonl") if "mse" in row)
    assert last["mse"] < first["mse"]
    assert last.keys() >= {"mse", "mse_unweighted", "mse_unseen", "mae"}


# --- devices that diverge ----------------------------------------------------------------------------------------------


@pytest.fixture
def scaled(fleet_data):
    """Return a function that scales the training examples of devices until their losses overflow."""

    def scale(*devices):
        x = fleet_data.x.copy()
        for device in devices:
            x[fleet_data.train(device)] *= 1e30
        return replace(fleet_data, x=x)

    return scale


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer(), Local(), FedAvgFineTune(1)], ids=lambda s: s.name)
def test_diverging_device_is_excluded_and_named(strategy, scaled, results, tmp_path):
    found = results(strategy, tmp_path, data=scaled(2))
    assert [(row["devices"], row["excluded"], row["excluded_devices"]) for row in found.rounds] == [
        (6 if strategy.alone else 5, 1, [2])
    ] * 3
    assert found.summary["excluded"] == 3
    assert all(np.isfinite(row["train_loss"]) for row in found.rounds)
    assert all(np.isfinite(tensor).all() for tensor in found.tensors.values())
    assert not any(name.startswith("2/") for _, name in found.states)


def test_too_few_devices_end_the_run(scaled, simulation, tmp_path):
    one_left = {"data": scaled(0, 1, 2, 3, 5, 6), "fleet": Fleet(min_devices=2), "plan": TrainingPlan(3, 0.05)}
    message = (
        r"round 1: 1 device contributed, fleet\.min_devices is 2; left out 6 \(loss not finite on device "
        r"0, 1, 2, 3, 5 and 1 more\); a smaller train\.learning_rate may help$"
    )
    with pytest.raises(SimulationError, match=message):
        simulation(FedAvg(), tmp_path, **one_left).run()
    assert not (tmp_path / "summary.json").exists()


def test_stragglers_are_named_where_too_few_devices_end_the_run(scaled, simulation, tmp_path):
    settings = {"fleet": Fleet(min_devices=4, stragglers=0.4), "plan": TrainingPlan(3, 0.05)}
    message = r"round 1: 0 devices .* is 4; left out 4 \(.*\), 3 were stragglers \(fleet\.stragglers\); a smaller"
    with pytest.raises(SimulationError, match=message):
        simulation(FedAvg(), tmp_path, data=scaled(*range(7)), **settings).run()


# --- what is refused before a run starts -------------------------------------------------------------------------------


def test_stragglers_that_leave_too_few_devices_are_refused(simulation, tmp_path, grouped):
    settings = {"fleet": Fleet(cohort=4, min_devices=4, stragglers=0.5), "plan": TrainingPlan(2, 0.05)}
    message = (
        r"^fleet\.min_devices: expected at most 2, since 2 of a round's 4 devices are stragglers \(fleet\.stragglers\), "
        r"which the strategy fedavg drops, found 4$"
    )
    with pytest.raises(ConfigurationError, match=message):
        simulation(FedAvg(), tmp_path, **settings)
    for strategy in (FedProx(), Local()):  # partial work counts; devices that train alone have no stragglers
        simulation(strategy, tmp_path, model=grouped, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, r"run\.rounds: expected a whole number of at least 1, found 0"),
        ({"evaluate_every": 0}, r"run\.evaluate_every: expected a whole number of at least 1 or null, found 0"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, found -1"),
        ({"fleet": Fleet(unseen=7)}, r"fleet\.unseen: expected 0 to 6, found 7; the fleet has 7 devices"),
        ({"fleet": Fleet(cohort=7, unseen=1)}, r"fleet\.cohort: expected 1 to 6, found 7; .* 1 of them unseen"),
        (
            {"fleet": Fleet(unseen=1, evaluated=1)},
            r"fleet\.evaluated: expected 2 to 7, found 1; .* 1 of them unseen",
        ),
        ({"fleet": Fleet(evaluated=8)}, r"fleet\.evaluated: expected 1 to 7, found 8"),
        ({"fleet": Fleet(cohort=3, min_devices=4)}, r"fleet\.min_devices: expected 0 to 3, found 4"),
    ],
)
def test_numbers_out_of_range_are_refused(simulation, tmp_path, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        simulation(FedAvg(), tmp_path, **settings)


def test_strategy_that_needs_what_the_model_lacks_is_refused(simulation, tmp_path):
    class Needy(FedAvg):
        needs = frozenset({"embed"})

    with pytest.raises(StrategyError, match=r"strategy Needy: needs embed, which .* lacks"):
        simulation(Needy(), tmp_path)


def test_data_that_does_not_fit_the_model_is_refused(simulation, clouds, tmp_path):
    wide = Dataset("wide", np.repeat(clouds.x, 2, axis=1), clouds.y, classes=3)
    with pytest.raises(
        DataError, match=r"data wide: x has shape \[12\] per example, the model's train signature takes \[6\]"
    ):
        simulation(FedAvg(), tmp_path, data=federate(wide, iid, 3, seed=0))
    many = Dataset("many", clouds.x, clouds.y + 1, classes=4)
    with pytest.raises(DataError, match=r"data many: 30 labels out of range, the first is 3"):
        simulation(FedAvg(), tmp_path, data=federate(many, iid, 3, seed=0))


@pytest.mark.parametrize(("columns", "split"), [((0, 1), "training"), ((2, 3), "test")])
def test_device_without_examples_is_refused(simulation, fleet_data, tmp_path, columns, split):
    offsets = fleet_data.offsets.copy()
    offsets[3, columns[0]] = offsets[3, columns[1]]
    data = replace(fleet_data, name="clouds", offsets=offsets)
    with pytest.raises(DataError, match=f"data clouds: device 3 has no {split} example; use fewer devices"):
        simulation(FedAvg(), tmp_path, data=data)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("RaisesInInit", r"in init with RuntimeError: no start \(.*user_strategies\.py:\d+\)"),
        ("RaisesInAggregate", r"in aggregate in round 1 with TypeError: .*user_strategies\.py:\d+\)"),
        ("AddsInPlace", "in aggregate in round 1 with ValueError: output array is read-only"),
        (
            "NamesByDevice",
            "in aggregate in round 1 with TypeError: the server's private 1 has a name of type int, expected text",
        ),
        ("ForgetsToReturnShared", "in init with StrategyError: shared returned None for the parameter .*; return True"),
        ("ForgetsTheState", "in aggregate in round 1 with TypeError: returned NoneType, expected a ServerState"),
        (
            "ForgetsToKeepUpdates",
            r"in aggregate in round 1 with StrategyError: updates.each has no updates; set keeps_updates = True in the "
            r"strategy's class \(.*user_strategies\.py:\d+\)",
        ),
        (
            "BroadcastsText",
            "in init with TypeError: the broadcast's 'note' is a str, expected Weights or a numpy array",
        ),
    ],
)
def test_error_of_a_strategy_on_the_coordinator_is_one_line(simulation, user, tmp_path, name, message):
    with pytest.raises(SimulationError, match=f"^strategy {name}: failed {message}") as caught:
        simulation(getattr(user, name)(), tmp_path).run()
    assert "\n" not in str(caught.value)


def test_round_without_contributions_names_an_average_that_is_not_finite(simulation, user, tmp_path):
    message = r"^round 2: 0 devices contributed, .*; the server sent values that are not finite .weights."
    with pytest.raises(SimulationError, match=message):
        simulation(user.AveragesToNaN(), tmp_path).run()


def test_traceback_of_an_error_in_user_code_is_short(user, simulation, tmp_path):
    """A notebook prints both tracebacks: a few frames; the cause's frames end in the user's code."""
    with pytest.raises(SimulationError) as caught:
        simulation(user.Raises(), tmp_path, backend=ProcessesBackend(2)).run()
    own, cause = (traceback.extract_tb(error.__traceback__) for error in (caught.value, caught.value.__cause__))
    assert [frame.name for frame in own[1:]] == ["run"]
    assert [frame.name for frame in cause] == ["update", "local", "look_up"]


class Interrupted(FedAvg):
    def local(self, device, broadcast):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("strategy", "kind", "names"), [(Interrupted, KeyboardInterrupt, ["local"]), (FedAvg, SimulationError, [])]
)
def test_traceback_of_a_stop_has_the_frames_of_user_code_alone(simulation, tmp_path, strategy, kind, names):
    with pytest.raises(kind) as caught:
        simulation(strategy(), tmp_path, plan=TrainingPlan(learning_rate=1e30)).run()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames[1:]] == ["run", *names]


@pytest.mark.parametrize("file", ["<stdin>", "<ipython-input-1-a>", "<python-input-0>", "/home/me/mine.py"])
def test_frames_of_a_prompt_are_the_users(file):
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", file, "exec"))
    assert traceback.extract_tb(user_frames(caught.value.__traceback__))[-1].filename == file


@pytest.mark.parametrize("directory", [None, 3])
def test_directory_that_is_no_path_is_refused(simulation, directory):
    with pytest.raises(
        ConfigurationError,
        match=rf"directory: expected the path of a folder, such as 'runs/fedavg', found {directory}",
    ):
        simulation(FedAvg(), directory)


@pytest.mark.slow
def test_states_of_more_than_1000_devices_have_several_folders(simulation, clouds, tmp_path):
    """A folder of states contains at most a thousand devices."""
    x, y = np.tile(clouds.x, (40, 1)), np.tile(clouds.y, 40)
    data = federate(Dataset("tiled", x, y, classes=3), partial(iid), 1100, seed=0)
    fleet = Fleet(cohort=40)
    simulation(Local(), tmp_path, data=data, rounds=1, fleet=fleet, plan=TrainingPlan(0)).run()
    ids = choose_cohort(np.arange(1100), 40, 0, 1)
    found = {path.parent.name for path in (tmp_path / "checkpoint" / "devices").rglob("*.1.safetensors")}
    assert found == {f"{id // 1000:03d}" for id in ids} == {"000", "001"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"model": "digits.tflite"},
            "model: expected a TrainableModel, found 'digits.tflite'; load it with",
        ),
        ({"data": ([], [])}, "data: expected a FederatedData, found a tuple; distribute a data set over"),
        ({"strategy": FedPer}, "strategy: expected a Strategy, found the class FedPer; pass FedPer()"),
        (
            {"strategy": "fedavg"},
            "strategy: expected a Strategy, found 'fedavg'; pass an instance, such as",
        ),
        (
            {"budget": 100},
            "budget: expected a Budget, found 100; pass an instance, such as Budget(steps=1000)",
        ),
        ({"fleet": 5}, "fleet: expected a Fleet, found 5; pass an instance, such as Fleet(cohort=10)"),
        ({"plan": TrainingPlan}, "plan: expected a TrainingPlan, found the class TrainingPlan; pass"),
        (
            {"aggregator": Median},
            "aggregator: expected an Aggregator, found the class Median; pass Median()",
        ),
        (
            {"backend": "ray"},
            "backend: expected an Executor, found 'ray'; pass an instance, such as ProcessesBac",
        ),
        (
            {"backend": ProcessesBackend},
            "backend: expected an Executor, found the class ProcessesBackend; pass ProcessesBackend()",
        ),
    ],
)
def test_argument_of_the_wrong_type_is_refused(simulation, tmp_path, wrong, message):
    with pytest.raises(ConfigurationError) as caught:
        simulation(**{"strategy": FedAvg(), "directory": tmp_path, **wrong})
    assert str(caught.value).startswith(f"Simulation: {message}")
