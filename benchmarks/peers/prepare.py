"""Export the models of all workloads with odt_sim, and write their arrays: data, cohorts and initial weights.

odt_sim draws the cohorts; the other simulators use the same ones.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from workload import shipped_file

from odt_sim import Device, TrainableModel
from odt_sim.conf.demo_data import next_words
from odt_sim.data.sources.fedprox_synthetic import synthetic
from odt_sim.simulation.run.cohort import choose_cohort
from peers.workloads import COHORT, WORKLOADS, drawn_images

Array = NDArray[Any]
SEED = 0  # the seed of odt_sim's runs
ZOO = "odt_sim.export.zoo"
MOBILENET = {"_target_": "peers.frozen_body.normalized_mobilenet", "size": 96, "classes": 10, "alpha": 0.25}


def models() -> dict[str, Path]:
    """Return the `.tflite` file of each workload, exported at its first use."""
    regression = {"_target_": f"{ZOO}.softmax_regression", "input_shape": [60], "classes": 10}
    transfer = {"build": MOBILENET, "optimizer": {"name": "SGD"}, "sys_path": [str(Path(__file__).parents[1])]}
    return {
        "softmax": shipped_file("softmax", build=regression, batch_size=WORKLOADS["softmax"].batch),
        "cnn": shipped_file("mnist_cnn"),
        "lstm": shipped_file("character_lstm"),
        "transfer": shipped_file("mobilenet_transfer", **transfer),
    }


def prepare(folder: Path, files: dict[str, Path]) -> None:
    """Write the arrays of the workloads with a model in `files`; `Problem` reads them."""
    for name, draw in (
        ("softmax", synthetic_users),
        ("cnn", images),
        ("lstm", sentences),
        ("transfer", transfer_images),
    ):
        if name in files:
            _write(folder / name, name, *draw(), TrainableModel.load(files[name]))


def synthetic_users() -> tuple[Array, Array, list[int]]:
    """Return FedProx's Synthetic(1, 1) of `conf/experiment/reproduce/fedprox_synthetic.yaml`, cut to whole batches."""
    data, batch = synthetic(1, 1, seed=3), WORKLOADS["softmax"].batch
    owned = [np.flatnonzero(data.users == user) for user in range(30)]
    kept = [own[: len(own) // batch * batch] for own in owned]
    chosen = np.concatenate(kept)
    return data.x[chosen], data.y[chosen], [len(own) for own in kept]


def images() -> tuple[Array, Array, list[int]]:
    """Return 100 devices with 96 images, `[28, 28, 1]` in 10 classes."""
    templates = np.random.default_rng(12345).normal(size=(10, 28, 28, 1)).astype(np.float32)
    x, y = [], []
    for device in range(100):
        generator = np.random.default_rng(1000 + device)
        y.append(generator.integers(0, 10, 96).astype(np.int32))
        x.append((0.5 * templates[y[-1]] + generator.normal(size=(96, 28, 28, 1))).astype(np.float32))
    return np.concatenate(x), np.concatenate(y), [96] * 100


def sentences() -> tuple[Array, Array, list[int]]:
    """Return 100 devices with 48 sequences of 40 symbols, labelled with the next symbol at each position."""
    data = next_words(users=100, examples=48, length=40)
    return data.x, data.y, [48] * 100


def transfer_images() -> tuple[Array, Array, list[int]]:
    """Return 20 devices with 32 images, `[96, 96, 3]` in 10 classes."""
    return *drawn_images(20 * 32, 96), [32] * 20


def _write(folder: Path, name: str, x: Array, y: Array, sizes: list[int], model: TrainableModel) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    workload, devices = WORKLOADS[name], np.arange(len(sizes))
    cohorts = [choose_cohort(devices, COHORT, SEED, round) for round in range(1, workload.rounds + 1)]
    device = Device(model, (x, y))
    weights, trained = device.weights, {"trainable"}
    arrays = {
        "x": x,
        "y": y.astype(np.int32),
        "starts": np.concatenate([[0], np.cumsum(sizes)]),
        "cohorts": np.stack(cohorts),
        **_numbered("initial", [weights[p.name] for p in weights.layout.parameters if p.role in trained]),
        **_numbered("body", [weights[p.name] for p in weights.layout.parameters if p.role not in trained]),
    }
    if model.embeds:
        arrays["features"] = np.asarray(device.embedded("train").x)
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)


def _numbered(name: str, arrays: list[Array]) -> dict[str, Array]:
    return {f"{name}_{i:03}": array for i, array in enumerate(arrays)}
