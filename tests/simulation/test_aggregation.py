"""Aggregators within runs: their results, their strategies, and equal bits on all backends."""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from slow import slow_except

import odt_sim.strategies
from odt_sim import Fleet, TrainingPlan, Weights
from odt_sim.aggregators import Aggregator, DifferentialPrivacy, Krum, Mean, Median, NormClipping, TrimmedMean
from odt_sim.data import Dataset, federate, iid
from odt_sim.device.runtime import Runtime
from odt_sim.errors import CheckpointError, ConfigurationError, SimulationError, StrategyError
from odt_sim.model.tensors import array_of
from odt_sim.simulation.run.run_warnings import run_warnings
from odt_sim.strategies import FedAvg, FedProx, Local, Scaffold
from odt_sim.strategies.base import Update, weights_of
from odt_sim.testing import DeathError, DiesInRound

pytestmark = pytest.mark.filterwarnings(
    "ignore:aggregator differential_privacy. adds noise to the BatchNorm statistics"
)

SHIPPED = [getattr(odt_sim.strategies, name) for name in odt_sim.strategies.__all__]
COMBINING = [kind for kind in SHIPPED if kind.keeps_updates]
ROBUST = {
    "median": Median,
    "trimmed_mean": partial(TrimmedMean, 0.1),
    "krum": partial(Krum, 0.1, 2),
    "norm_clipping": partial(NormClipping, 0.01),
    "differential_privacy": partial(DifferentialPrivacy, 0.05, 0.1),
}


class Sends(FedAvg):
    """Sends a known number as every weight, with a known aggregation weight."""

    def __init__(self, numbers, weights=None):
        self._numbers, self._weights = numbers, weights or [1.0] * len(numbers)

    def local(self, device, broadcast):
        layout = weights_of(broadcast).layout
        sent = Weights(layout, np.full(layout.size, self._numbers[device.id], np.float32))
        return Update({"weights": sent}, self._weights[device.id], np.ones(1, np.float32))


class Scaled(FedAvg):
    """FedAvg with some devices that scale their update."""

    def __init__(self, hostile, factor):
        self._hostile, self.factor = hostile, factor

    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        factor = self.factor if device.id in self._hostile else 1.0
        return Update({"weights": factor * weights_of(update.tensors)}, update.weight, update.losses)


@pytest.fixture
def moved(results, tmp_path, momentum):
    """Return a function that returns the change of every weight in one round."""

    def run(numbers, aggregator, weights=None, **settings):
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        settings = {"rounds": 1, "fleet": Fleet(), "aggregator": aggregator, **settings}
        after = results(Sends(numbers, weights), directory, **settings).tensors["broadcast.weights"]
        change = after - Runtime(momentum).initial.vector
        assert np.ptp(change) < 1e-4
        return float(change.mean())

    return run


def test_known_answers_of_a_round(moved, momentum):
    numbers, weights = [1, 2, 3, 4, 5, 6, 70], [1, 1, 1, 1, 1, 1, 2]
    assert moved(numbers, Mean(), weights) == pytest.approx(161 / 8, rel=1e-5)
    assert moved(numbers, Median(), weights) == pytest.approx(4, rel=1e-5)
    assert moved(numbers, TrimmedMean(0.1), weights) == pytest.approx(4, rel=1e-5)
    assert moved(numbers, Krum(0.1), weights) == pytest.approx(3, rel=1e-5)
    bound = 5 * momentum.layout.size**0.5  # five in every position
    assert moved(numbers, NormClipping(bound), weights) == pytest.approx(30 / 8, rel=1e-5)
    assert moved(numbers, NormClipping(1e9), weights) == moved(numbers, Mean(), weights)
    assert moved(numbers, DifferentialPrivacy(bound, 0), weights) == pytest.approx(25 / 7, rel=1e-5)


def test_excluded_and_late_devices_count_as_zero_under_privacy(moved):
    numbers = [1, 2, 3, float("nan"), 5, 6, 7]
    assert moved(numbers, DifferentialPrivacy(1e9, 0)) == pytest.approx(24 / 7, rel=1e-5)
    settings = {"fleet": Fleet(stragglers=0.4), "plan": TrainingPlan(2, 0.05)}  # 3 of 7
    assert moved([7.0] * 7, DifferentialPrivacy(1e9, 0), **settings) == pytest.approx(4, rel=1e-5)


@pytest.mark.parametrize("kind", [Scaffold], ids=lambda kind: kind.__name__)
def test_averaging_strategies_run_under_every_aggregator(kind, model_for, results, tmp_path):
    settings = {"model": model_for(kind()), "rounds": 2, "evaluate_every": 2}
    plain = results(kind(), tmp_path / "mean", **settings).tensors
    for name, aggregator in ROBUST.items():
        found = results(kind(), tmp_path / name, **settings, aggregator=aggregator())
        assert found.summary["settings"]["aggregator"] == name
        assert (found.summary["privacy"] is not None) == (name == "differential_privacy")
        assert found.tensors.keys() == plain.keys()
        assert all(np.isfinite(tensor).all() for tensor in found.tensors.values())
        assert any(not np.array_equal(tensor, plain[key]) for key, tensor in found.tensors.items())


@pytest.mark.parametrize("name", slow_except(["median"], ROBUST))
def test_resumed_runs_give_the_serial_bits(name, grouped, simulation, results, tmp_path):
    """SCAFFOLD sends a weighted and an unweighted tensor; the cohort is five of six devices."""
    settings = {"model": grouped, "rounds": 3, "fleet": Fleet(cohort=5, unseen=1)}
    serial = results(Scaffold(), tmp_path / "serial", **settings, aggregator=ROBUST[name]())
    with pytest.raises(DeathError):
        simulation(Scaffold(), tmp_path / "died", **settings, aggregator=ROBUST[name](), backend=DiesInRound(2)).run()
    simulation(Scaffold(), tmp_path / "died", **settings, aggregator=ROBUST[name]()).run(resume=True)
    type(serial).read(tmp_path / "died").assert_same_bits(serial)


@pytest.mark.parametrize("aggregator", [Krum(0.4), DifferentialPrivacy(0.05, 0.1)], ids=lambda rule: rule.name)
def test_local_training_ignores_the_aggregator(aggregator, results, tmp_path):
    """Seven devices are too few for this Krum."""
    plain, found = (results(Local(), tmp_path / rule.name, aggregator=rule) for rule in (Mean(), aggregator))
    assert found.summary.pop("settings")["aggregator"] == aggregator.name
    del plain.summary["settings"]
    found.assert_same_bits(plain)


def test_scaffold_weights_control_variates_equally(grouped, results, tmp_path):
    """With one device a round the median is its update, and the control moves by its share."""
    settings = {"model": grouped, "rounds": 2, "fleet": Fleet(cohort=1, unseen=1)}
    plain, median = (
        results(Scaffold(), tmp_path / name, **settings, aggregator=aggregator)
        for name, aggregator in (("mean", Mean()), ("median", Median()))
    )
    for name, tensor in plain.tensors.items():
        np.testing.assert_allclose(median.tensors[name], tensor, rtol=1e-5, atol=1e-7)


def test_robust_aggregators_withstand_hostile_devices(any_rows, results, tmp_path):
    """Two of ten devices send their update times -10."""
    y = np.arange(400, dtype=np.int32) % 3
    x = (np.random.default_rng(0).normal(size=(400, 6)) + 3 * np.eye(3, 6)[y]).astype(np.float32)
    data = federate(Dataset("clouds", x, y, classes=3), iid, 10, seed=0)

    def accuracy(aggregator, factor):
        directory = tmp_path / f"{aggregator.name}{factor}"
        settings = {"rounds": 10, "evaluate_every": 10, "plan": TrainingPlan(1, 0.2), "fleet": Fleet(), "data": data}
        found = results(Scaled({3, 7}, factor), directory, model=any_rows, **settings, aggregator=aggregator)
        return found.summary["metrics"]["accuracy"]["weighted_mean"]

    honest = accuracy(Mean(), 1.0)
    assert honest > 0.9
    assert accuracy(Mean(), -10.0) < 0.5
    for aggregator in (Median(), TrimmedMean(0.2), Krum(0.2, 4), NormClipping(0.3)):
        assert accuracy(aggregator, -10.0) > honest - 0.05, aggregator.name


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMBINING, ids=lambda kind: kind.__name__)
def test_strategy_that_combines_updates_itself_is_refused(kind, model_for, simulation, tmp_path):
    message = (
        rf"strategy {kind().name}: .* itself and does not use aggregator median; choose aggregator=mean or another"
    )
    with pytest.raises(StrategyError, match=message):
        simulation(kind(), tmp_path, model=model_for(kind()), aggregator=Median())
    simulation(kind(), tmp_path, model=model_for(kind()), aggregator=Mean())


def test_too_small_cohort_is_refused_before_the_run(simulation, grouped, tmp_path):
    make = partial(simulation, directory=tmp_path, aggregator=Krum(0.2))
    with pytest.raises(
        ConfigurationError, match=r"krum: expected at least 5 updates, .* found 4; use more devices per r"
    ):
        make(FedAvg(), fleet=Fleet(cohort=4))
    late = {"fleet": Fleet(cohort=5, stragglers=0.2), "plan": TrainingPlan(2, 0.05)}
    with pytest.raises(ConfigurationError, match="found 4"):
        make(FedAvg(), **late)
    make(FedProx(), model=grouped, **late)  # uses the partial work of stragglers
    assert not list(tmp_path.iterdir())


def test_round_with_too_few_updates_ends_the_run(simulation, tmp_path):
    run = simulation(Sends([1, 2, 3, float("nan"), 5, 6, 7]), tmp_path, fleet=Fleet(), aggregator=Krum(0.2))
    with pytest.raises(
        SimulationError,
        match=r"^round 1: aggregator krum: expected at least 7 updates, .*, found 6; use .*; left out 1 "
        r"\(update not finite on device 3\); a smaller train\.learning_rate may help$",
    ):
        run.run()


def test_another_aggregator_cannot_resume_the_run(simulation, tmp_path):
    simulation(FedAvg(), tmp_path, rounds=1, aggregator=TrimmedMean(0.1)).run()
    for aggregator, name in ((Median(), "aggregator trimmed_mean"), (TrimmedMean(0.2), r"aggregator\.hostile 0\.1")):
        with pytest.raises(CheckpointError, match=f"belongs to a run with {name}, but this run has"):
            simulation(FedAvg(), tmp_path, rounds=2, aggregator=aggregator).run(resume=True)


class Halves(Aggregator):
    """Return half of the mean."""

    def combine(self, updates, cohort, random):
        half = {name: 0.5 * tensor for name, tensor in updates.mean.items()}
        return type(updates)(half, updates.weight, updates.count, updates.participants)


class Breaks(Halves):
    def limit(self, tensors):
        return {"weights": tensors["weight"]}


class Forgets(Halves):
    def combine(self, updates, cohort, random):
        super().combine(updates, cohort, random)


class LimitsToNothing(Halves):
    def limit(self, tensors):
        return {name: tensor * float("nan") for name, tensor in tensors.items()}


class Explodes(Halves):
    def combine(self, updates, cohort, random):
        return replace(updates, mean=LimitsToNothing().limit(updates.mean))


class ForgetsTheMean(Halves):
    keeps_updates = True

    def combine(self, updates, cohort, random):
        return updates


class Flattens(Halves):
    def combine(self, updates, cohort, random):
        return replace(updates, mean={name: array_of(tensor) for name, tensor in updates.mean.items()})


def test_aggregator_of_a_user_runs(moved):
    assert moved([2.0] * 7, Halves()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Breaks,
            r"aggregator Breaks: failed on device 0 in round 1 with KeyError: 'weight' \(.*test_aggregation\.py:\d+\)",
        ),
        (
            Forgets,
            r"aggregator Forgets: failed in round 1 with TypeError: combine returned NoneType, expected Updates; c",
        ),
        (
            ForgetsTheMean,
            r"aggregator ForgetsTheMean: failed in round 1 with TypeError: combine left 'weights' out of the mean; return",
        ),
        (
            Flattens,
            r"aggregator Flattens: failed in round 1 with TypeError: the combined update's 'weights' is an array, but the "
            r"devices sent Weights; create it with odt_sim\.aggregators\.base\.with_numbers",
        ),
        (
            LimitsToNothing,
            r"aggregator LimitsToNothing: failed on device 0 in round 1 with ValueError: the limited update's 'weights' "
            r"holds NaN or infinity, expected finite numbers; correct it",
        ),
        (
            Explodes,
            r"aggregator Explodes: failed in round 1 with ValueError: the combined update's 'weights' holds NaN or inf",
        ),
    ],
)
def test_error_of_an_aggregator_is_one_line(kind, message, simulation, tmp_path):
    with pytest.raises(SimulationError, match=message) as caught:
        simulation(FedAvg(), tmp_path, fleet=Fleet(), aggregator=kind()).run()
    assert "\n" not in str(caught.value)


class Unchecked(Halves):
    def check(self, devices):
        raise KeyError(devices)


class Promises(Halves):
    def __init__(self, privacy):
        self._privacy = privacy

    def privacy(self, rounds, cohort, participants):
        return self._privacy if isinstance(self._privacy, dict | list) else 1 / self._privacy


@pytest.mark.parametrize(
    ("aggregator", "message"),
    [
        (
            Unchecked(),
            r"aggregator Unchecked: failed in check of 6 updates with KeyError: 6 \(.*test_aggregation\.py:\d+\)",
        ),
        (
            Promises(0),
            r"aggregator Promises: failed in privacy with ZeroDivisionError: .*test_aggregation\.py:\d+\); corr",
        ),
        (Promises([1.0]), r"TypeError: it returned list, expected a mapping or None"),
        (Promises({"delta": 1e-5}), r"ValueError: 'epsilon' is None, expected a number from 0 to inf"),
        (Promises({"epsilon": float("nan"), "delta": 1e-5}), r"ValueError: 'epsilon' is nan, expected a number"),
        (Promises({"epsilon": 1.0, "delta": 2}), r"ValueError: 'delta' is 2, expected a number from 0 to 1"),
        (Promises({"epsilon": 1.0, "delta": 0, "users": {1}}), r"TypeError: Object of type set is not JSON"),
    ],
)
def test_check_and_privacy_of_an_aggregator_run_before_the_run(aggregator, message, simulation, tmp_path):
    with pytest.raises(SimulationError, match=message) as caught:
        simulation(FedAvg(), tmp_path, aggregator=aggregator)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_summary_holds_the_privacy_promise(simulation, tmp_path):
    run = simulation(FedAvg(), tmp_path, aggregator=DifferentialPrivacy(1.0, 2.0), fleet=Fleet(cohort=2, unseen=1))
    run.run()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["privacy"] == DifferentialPrivacy(1.0, 2.0).privacy(rounds=3, cohort=2, participants=6)
    assert 1 < summary["privacy"]["epsilon"] < 100
    assert re.fullmatch(r"2\.0", summary["settings"]["aggregator.noise_multiplier"])


def test_privacy_is_that_of_the_rounds_that_ran(simulation, tmp_path):
    private, fleet = DifferentialPrivacy(1.0, 2.0), Fleet(cohort=2, unseen=1)
    run = simulation(
        FedAvg(), tmp_path, aggregator=private, fleet=fleet, rounds=50, callbacks=[lambda record: record.round == 2]
    )
    assert run.run().rounds == 2
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["privacy"] == private.privacy(rounds=2, cohort=2, participants=6)
    assert summary["privacy"]["epsilon"] < private.privacy(50, 2, 6)["epsilon"] / 2


class Odd(FedAvg):
    """FedAvg in which devices with an odd id send one more tensor."""

    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        more = {"odd": np.ones(1, np.float32)} if device.id % 2 else {}
        return replace(update, tensors={**update.tensors, **more})


def test_privacy_refuses_tensors_that_only_some_devices_send(simulation, tmp_path):
    """Noise on the mean would not hide which devices sent them."""
    private = simulation(Odd(), tmp_path / "private", aggregator=DifferentialPrivacy())
    with pytest.raises(
        SimulationError, match=r"strategy Odd: in round 1 only some devices sent odd, which aggregator diff"
    ):
        private.run()
    simulation(Odd(), tmp_path / "mean").run()


def warnings_of(job):
    return list(run_warnings(job, own_examples=False))


def test_run_warns_of_a_delta_of_a_whole_user(simulation, tmp_path):
    def of(delta):
        return warnings_of(simulation(FedAvg(), tmp_path, aggregator=DifferentialPrivacy(delta=delta)).job)

    assert of(1e-5) == []
    (warning,) = of(0.2)  # of six users
    assert warning.startswith("aggregator.delta: 0.2 of 6 users amounts to one user or more")


def test_run_warns_of_noise_on_variances(simulation, grouped, tmp_path):
    def of(strategy, noise, model=grouped):
        private = DifferentialPrivacy(noise_multiplier=noise)
        return warnings_of(simulation(strategy, tmp_path, aggregator=private, model=model).job)

    (warning,) = of(FedAvg(), 1.0)
    assert warning.startswith("aggregator differential_privacy: adds noise to the BatchNorm statistics of the model")
    assert of(FedAvg(), 0.0) == of(odt_sim.strategies.FedBN(), 1.0) == []
