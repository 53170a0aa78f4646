"""Arguments that public functions check raise an error of one line."""

import numpy as np
import pytest

from odt_sim import Device, Results, TrainableModel, Weights
from odt_sim.conf.demo_data import arm
from odt_sim.data import Dataset, federate, iid, rotation
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import ConfigurationError, DataError, OdtSimError

X, Y = np.zeros((4, 6), np.float32), np.zeros(4, np.int32)


MISTAKES = {
    "TrainableModel(path)": (
        lambda m: TrainableModel("m.tflite"),
        r"TrainableModel: .* use TrainableModel\.load",
    ),
    "Results": (
        lambda m: Results("runs"),
        r"Results: expected loaded runs; load folders with Results\.load",
    ),
    "Weights": (
        lambda m: Weights(m.layout, [1.0]),
        r"weights: expected a layout.*, found a Layout and a list; build",
    ),
    "arm": (lambda m: arm(users="3"), r"data.users: expected a number of at least 1, found '3'"),
    "classes": (
        lambda m: federate(Dataset("d", X, Y, classes="3"), iid, 1, 0),
        r"classes is '3', expected a whole",
    ),
    "seed": (
        lambda m: Device(m, (X, Y), seed=1.5),
        r"expected whole numbers .* as seed, .* found 1\.5, 0, 0",
    ),
    "train": (lambda m: Device(m, None), r"train: expected the pair \(x, y\), found NoneType"),
    "metrics": (
        lambda m: Device(m, (X, Y), metrics=[len]),
        r"metrics: expected a list of OwnMetric, found a",
    ),
    "batches": (lambda m: next(Device(m, (X, Y)).batches(3)), r"plan: expected a TrainingPlan, found int"),
    "plan": (
        lambda m: next(Device(m, (X, Y)).batches(TrainingPlan)),
        r"plan: expected a TrainingPlan, found type",
    ),
    "inputs": (
        lambda m: Device(m, (X, Y)).train(inputs=[1]),
        r"inputs: expected a mapping of names",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_is_one_line(case, small_mlp):
    mistake, message = MISTAKES[case]
    with pytest.raises(OdtSimError, match=message) as caught:
        mistake(small_mlp)
    assert "\n" not in str(caught.value)


def test_drift_of_a_negative_seed_is_refused():
    data = federate(Dataset("d", np.zeros((4, 2, 2, 1), np.float32), Y, classes=2), iid, 1, 0)
    with pytest.raises((ConfigurationError, DataError), match=r"seed: expected a whole number of at least 0, found -1"):
        rotation(data, -1)
