"""The trained global model in the folder of a finished run."""

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound

from odt_sim import Device, Simulation, TrainableModel, TrainingPlan
from odt_sim.data import digits, federate, iid
from odt_sim.device.runtime import Runtime
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.shared_parts.fedper import FedPer


def test_file_scores_the_reported_accuracy(softmax, tmp_path):
    data = federate(digits(), iid, 6, seed=0)
    run = Simulation(softmax, data, FedAvg(), rounds=4, directory=tmp_path, plan=TrainingPlan(2, 0.5))
    summary = run.run()
    trained = TrainableModel.load(tmp_path / "model.tflite")
    assert (tmp_path / "initial.tflite").read_bytes() == softmax.content
    scores, sizes = [], []
    for id in range(data.devices):
        splits = [(data.x[part], data.y[part]) for part in (data.train(id), data.validation(id), data.test(id))]
        figures = Device(trained, *splits).evaluate()
        scores.append(figures["accuracy"])
        sizes.append(figures["examples"])
    assert np.average(scores, weights=sizes) == summary["metrics"]["accuracy"]["weighted_mean"]
    assert summary["metrics"]["accuracy"]["weighted_mean"] > 0.5


def test_frozen_parameters_are_those_of_the_untrained_model(frozen, results, tmp_path):
    results(FedAvg(), tmp_path, model=frozen)
    initial, trained = (
        Runtime(TrainableModel.load(tmp_path / name)).initial for name in ("initial.tflite", "model.tflite")
    )
    for parameter in frozen.parameters:
        same = np.array_equal(initial[parameter.name], trained[parameter.name])
        assert same == (parameter.role == "frozen"), parameter.name


@pytest.mark.parametrize("strategy", [Local(), FedPer()], ids=lambda strategy: strategy.name)
def test_strategy_without_a_global_model_leaves_none(strategy, results, tmp_path):
    results(strategy, tmp_path)
    assert (tmp_path / "initial.tflite").exists()
    assert not (tmp_path / "model.tflite").exists()


def test_prolonged_run_has_no_trained_model_until_it_ends(simulation, results, tmp_path):
    simulation(FedAvg(), tmp_path / "run", rounds=2).run()
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", rounds=4).run(resume=True, observers=[DiesAfterRound(3)])
    assert not (tmp_path / "run" / "model.tflite").exists()
    simulation(FedAvg(), tmp_path / "run", rounds=4).run(resume=True)
    results(FedAvg(), tmp_path / "whole", rounds=4)
    assert (tmp_path / "run" / "model.tflite").read_bytes() == (tmp_path / "whole" / "model.tflite").read_bytes()
