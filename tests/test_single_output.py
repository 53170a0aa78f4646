"""Models with one output on targets of one number: from an `.npz` file to the weights of a fleet."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from odt_sim import Device, Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.data import by_user, federate, npz
from odt_sim.export.cache import exported
from odt_sim.strategies.averaging.fedavg import FedAvg

RATE = 0.1


def single_output(loss):
    build = {"_target_": "odt_sim.export.zoo.softmax_regression", "input_shape": [3], "classes": 1}
    spec = {"name": "single", "build": build, "loss": loss, "optimizer": {"name": "SGD"}, "batch_size": 4, "seed": 0}
    return TrainableModel.load(exported(spec))


@pytest.fixture(scope="module", params=["mean_squared_error", "binary_crossentropy"])
def model(request):
    return single_output(request.param)


@pytest.fixture
def data(model, tmp_path):
    """Five examples of each of two users, three of them for training."""
    random = np.random.default_rng(0)
    x = random.normal(size=(10, 3))
    y = x.sum(axis=1) if model.loss == "mean_squared_error" else (x.sum(axis=1) > 0).astype(np.int64)
    np.savez(tmp_path / "points.npz", x=x, y=y, who=np.arange(10) // 5)
    return federate(npz(tmp_path / "points.npz", users="who"), by_user, None, 0)


def gradient_step(kernel, bias, x, y, loss):
    """Return the result of one step on the mean loss over the rows, in float64."""
    outputs = (x @ kernel + bias)[:, 0]
    error = 2 * (outputs - y) if loss == "mean_squared_error" else 1 / (1 + np.exp(-outputs)) - y
    return kernel - RATE * x.T @ error[:, np.newaxis] / len(x), bias - RATE * error.mean()


def test_fedavg_round_is_exact(model, data, tmp_path):
    assert data.y.ndim == 1
    kernel, bias = Device(model, train=(data.x, data.y)).parameters().tensors()
    x, y = data.x.astype(np.float64), data.y.astype(np.float64)
    steps = [gradient_step(kernel, bias, x[rows], y[rows], model.loss) for rows in (data.train(0), data.train(1))]
    expected = [np.mean(values, axis=0) for values in zip(*steps, strict=True)]
    plan, fleet = TrainingPlan(1, RATE), Fleet()
    Simulation(model, data, FedAvg(), rounds=1, directory=tmp_path / "run", fleet=fleet, plan=plan).run()
    kept = load_file(tmp_path / "run" / "checkpoint" / "server.1.safetensors")
    found = np.concatenate([value.ravel() for value in kept.values() if value.dtype == np.float32])
    np.testing.assert_allclose(found, np.concatenate([value.ravel() for value in expected]), atol=1e-6)


def test_device_takes_targets_in_the_same_form(model, data):
    flat, shaped = (
        Device(model, train=(data.x, y), test=(data.x, y)) for y in (data.y, data.y.astype(np.float32)[:, np.newaxis])
    )
    assert flat.train(2, RATE).tolist() == shaped.train(2, RATE).tolist()
    assert flat.train_batch(data.x[:3], data.y[:3], RATE) == shaped.train_batch(data.x[:3], data.y[:3], RATE)
    assert flat.evaluate() == shaped.evaluate()
