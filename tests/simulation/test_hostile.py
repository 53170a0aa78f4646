"""Hostile devices: no metric counts them, the attack makes their updates, and all backends give the same bits."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.attacks import Attack, Backdoor, Scaling
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.model.tensors import array_of
from odt_sim.simulation.run.cohort import choose_hostile
from odt_sim.strategies import FedAvg
from odt_sim.strategies.base import Update
from odt_sim.testing import random_data

HOSTILE = [1, 4]


class Halved(FedAvg):
    """FedAvg in which devices 1 and 4 send their update times -0.5."""

    def local(self, device: Any, broadcast: Any) -> Update:
        update = super().local(device, broadcast)
        factor = -0.5 if device.id in HOSTILE else 1.0
        return Update({name: factor * tensor for name, tensor in update.tensors.items()}, update.weight, update.losses)


def test_updates_are_those_of_the_attack(results: Any, tmp_path: Any) -> None:
    fleet = Fleet(unseen=[0], hostile=HOSTILE)
    found = results(FedAvg(), tmp_path / "attack", fleet=fleet, attack=Scaling(-0.5))
    expected = results(Halved(), tmp_path / "strategy", fleet=Fleet(unseen=[0]))
    for name, tensor in expected.tensors.items():
        if name.startswith("broadcast"):
            np.testing.assert_array_equal(found.tensors[name], tensor)


def test_no_figure_counts_hostile_devices(simulation: Any, tmp_path: Any) -> None:
    run = simulation(FedAvg(), tmp_path / "run", fleet=Fleet(unseen=[0], hostile=HOSTILE))
    summary = run.run()
    records = run._folder.devices()
    assert {record.device for record in records if record.not_evaluated == "hostile"} == set(HOSTILE)
    honest = [record for record in records if record.seen and record.device not in HOSTILE]
    expected = np.average([record["accuracy"] for record in honest], weights=[record.examples for record in honest])
    assert summary.metrics["accuracy"]["weighted_mean"] == pytest.approx(expected)
    assert summary.metrics["accuracy"]["devices"] == len(honest)
    validated = [record["validation_accuracy"] for record in honest if record.validation_examples]
    assert summary.metrics_validation["accuracy"]["devices"] == len(validated)
    assert summary.settings["fleet.hostile"] == "[1, 4]"
    assert summary.settings["attack"] == "none"


def test_training_loss_is_that_of_honest_devices(results: Any, tmp_path: Any) -> None:
    fleet = Fleet(unseen=[0], hostile=HOSTILE)
    settings = {"rounds": 1, "fleet": fleet}
    plain = results(FedAvg(), tmp_path / "none", **settings)
    attacked = results(FedAvg(), tmp_path / "scaled", **settings, attack=Scaling(100.0))
    assert attacked.rounds[0]["train_loss"] == plain.rounds[0]["train_loss"]
    everyone = results(FedAvg(), tmp_path / "all", rounds=1, fleet=Fleet(unseen=[0]))
    assert everyone.rounds[0]["train_loss"] != plain.rounds[0]["train_loss"]


class Answered(Backdoor):
    """An attack that should make the unchanged examples of class 1 be classified as 2."""

    def check(self, model: Any) -> None:
        """Take any model."""

    def poisoned(self, device: Any, examples: Any) -> Any:
        return examples

    def _stamped(self, images: Any) -> Any:
        return images


def test_success_of_a_backdoor_is_the_share_of_the_attackers_answers(simulation: Any, tmp_path: Any) -> None:
    run = simulation(FedAvg(), tmp_path / "run", fleet=Fleet(unseen=[0], hostile=HOSTILE), attack=Answered(target=2))
    summary = run.run()
    seen = [record for record in run._folder.devices() if record.seen and "attack_success" in record]
    shares = []
    for device in run.deployed([record.device for record in seen]):
        x, y = map(array_of, device.test_examples.take())
        shares.append(np.mean(device.infer(x)[y != 2].argmax(axis=1) == 2))
    assert [record["attack_success"] for record in seen] == pytest.approx(shares)
    assert [record["global_attack_success"] for record in seen] == pytest.approx(
        shares
    )  # FedAvg deploys the global model
    assert summary.attack_success == pytest.approx(np.mean(shares))


class Broken(Attack):
    def sent(self, device: Any, tensors: Any) -> Any:
        return tensors["missing"]


def test_error_of_an_attack_names_it_and_its_line(simulation: Any, tmp_path: Any) -> None:
    message = r"attack Broken: failed on device 1 in round 1 with KeyError: 'missing' \(.*test_hostile\.py:\d+\)"
    with pytest.raises(SimulationError, match=message):
        simulation(FedAvg(), tmp_path, fleet=Fleet(hostile=HOSTILE), attack=Broken()).run()


class Forgets(Attack):
    def poisoned(self, device: Any, examples: Any) -> Any:
        examples.take()


def test_attack_that_returns_no_examples_is_refused(simulation: Any, tmp_path: Any) -> None:
    with pytest.raises(SimulationError, match=r"attack Forgets: .* poisoned returned NoneType, expected Examples"):
        simulation(FedAvg(), tmp_path, fleet=Fleet(hostile=HOSTILE), attack=Forgets()).run()


def test_attackers_are_seen_devices_and_more_of_them_include_fewer() -> None:
    few, more = (choose_hostile(20, [0, 1, 2], count, seed=3) for count in (4, 8))
    assert len(few) == 4
    assert few < more
    assert not more & {0, 1, 2}


@pytest.mark.parametrize(
    ("fleet", "attack", "message"),
    [
        ({}, Scaling(), "attack scaling: expected hostile devices, found fleet.hostile=0"),
        ({"unseen": [0], "hostile": [0]}, Attack(), "fleet.hostile: device 0 is unseen"),
        ({"unseen": [0], "hostile": 99}, Attack(), "fleet.hostile: expected 0 to"),
        ({"hostile": [1, 1]}, Attack(), "fleet.hostile: expected a list of different ids"),
    ],
)
def test_refusals(simulation: Any, tmp_path: Any, fleet: dict[str, Any], attack: Attack, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        simulation(FedAvg(), tmp_path, fleet=Fleet(**fleet), attack=attack)


class Wanting(Attack):
    """An attack with target answers, for any model."""

    def triggered(self, examples: Any) -> Any:
        return examples


def test_success_without_an_accuracy_is_refused(simulation: Any, regression: TrainableModel, tmp_path: Any) -> None:
    data, fleet = random_data(regression, [4, 4, 4]), Fleet(hostile=[1])
    with pytest.raises(
        ConfigurationError, match=r"attack Wanting: its success is the accuracy .* has mse, .*one output$"
    ):
        simulation(FedAvg(), tmp_path, regression, data=data, fleet=fleet, attack=Wanting())
