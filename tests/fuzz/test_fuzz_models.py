"""Damaged `.tflite` files: LiteRT may crash only in the trial process."""

import shutil

import numpy as np
import pytest
from dialects import generated
from mutations import mutated

from odt_sim import Simulation, TrainableModel
from odt_sim.cli.commands.inspect import print_model
from odt_sim.data import federate, iid
from odt_sim.data.dataset import Dataset
from odt_sim.strategies.averaging.fedavg import FedAvg

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(softmax, momentum, adam, any_rows, small_mlp, foreign):
    """Valid models: with and without slots, groups, manifest, fixed batch and signatures that read weights."""
    models = (softmax, momentum, adam, any_rows, small_mlp)
    others = ((foreign / "plain.tflite").read_bytes(), generated("closed_momentum").content)
    return [*(model.content for model in models), *others]


def data_for(model):
    """Examples with the shape that a model declares."""
    x, y = (np.zeros((24, *tensor.shape[1:]), tensor.dtype) for tensor in (model.x, model.y))
    x += np.random.default_rng(0).random(x.shape).astype(x.dtype)
    return federate(Dataset("made", x, y, classes=model.classes or 0), iid, 2, seed=0)


@pytest.mark.usefixtures("unverified")
def test_damaged_model_never_ends_the_process(files, many, outcomes, tmp_path, capfd):
    path = tmp_path / "damaged.tflite"

    def use():
        print_model(path)
        model = TrainableModel.load(path, loss="sparse_categorical_crossentropy")
        Simulation(model, data_for(model), FedAvg(), rounds=1, directory=tmp_path / "run").run()
        return "ran a round"

    for case in range(many(42, 2000)):
        path.write_bytes(mutated(case, files))
        line = outcomes.of(case, use)
        outcomes.counts["crashed LiteRT"] += "LiteRT crashes" in line
        outcomes.counts["took LiteRT too long"] += "LiteRT did not" in line
        capfd.readouterr()
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    assert outcomes.counts["refused"] > outcomes.counts["ran a round"]
