"""Runs on each data set of conf/data, and its content."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from runs import FEW, given
from scipy.io import wavfile
from sklearn.datasets import load_digits

from odt_sim.cli.hydra.build import federated
from odt_sim.cli.hydra.components import build
from odt_sim.cli.hydra.overrides import composed

DATA = {
    "digits": {},
    "function": {"data.target": "mine.examples", "+data.count": 60},
    "keras": {},
    "mnist": {},
    "npz": {"data.path": "images.npz", "data.y": "labels"},
}


def inputs(name: str, pictures: Any) -> Any:
    """Return the known inputs of a data set, without the channel axis."""
    return {
        "digits": lambda: load_digits().images / 16,
        "function": lambda: np.full((60, 8, 8), 0.5),
        "keras": lambda: pictures / 255,
        "mnist": lambda: pictures / 255,
        "npz": lambda: pictures[:, :8, :8] / 255,
    }[name]()


@pytest.mark.parametrize("name", DATA)
def test_data_is_as_summarized(name, pictures):
    data = federated(composed(given({"data": name, "partition": "iid", **DATA[name], **FEW})))
    np.testing.assert_allclose(data.x[..., 0], inputs(name, pictures), atol=1e-6)
    np.testing.assert_array_equal(data.y, load_digits().target if name == "digits" else np.arange(60) % 10)
    if name in ("keras", "mnist"):
        assert data.name == "mnist"


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_data_of_keras_has_a_name(name, cache, pictures):
    np.savez(cache / "data" / f"keras_{name}.npz", x=pictures, y=np.arange(60) % 10)
    assert build(composed([f"data={name}"]).data, "data").name == name


DRAWN = (np.random.default_rng([0, 3]).lognormal(4, 2, 3).astype(int) + 50).tolist()
OF_USERS: dict[str, tuple[dict[str, Any], list[int]]] = {  # and how many examples each user has
    "audio": ({"data.path": "words"}, [6, 5, 4]),
    "femnist": ({"data.path": "femnist"}, [5, 4, 3]),
    "hugging_face": ({"data.path": "saved", "data.x": "x", "data.y": "y", "data.users": "who"}, [6, 5, 4]),
    "images": ({"data.path": "photos", "data.size": "[8,8]", "data.channels": 1}, [6, 5, 4]),
    "parquet": ({"data.path": "people.parquet", "data.target": "kind", "data.users": "who"}, [6, 5, 4]),
    "pfedme_synthetic": ({"data.users": 3}, [5 * size for size in DRAWN]),
    "school": ({"data.path": "school.npz"}, [6, 5, 4]),
    "sent140": ({"data.path": "sent140", "data.length": 8}, [5, 4, 3]),
    "shakespeare": ({"data.path": "shakespeare"}, [5, 4, 3]),
    "synthetic": ({"data.users": 3}, DRAWN),
    "table": ({"data.path": "people.csv", "data.target": "kind", "data.users": "who"}, [6, 5, 4]),
    "uci_har": ({"data.path": "har.npz", "split.method": "block"}, [7, 7, 7]),  # of 9
}


def write_data_of_users(folder: Path) -> None:
    """Write small files in the formats of the data sets with users."""
    random = np.random.default_rng(0)
    writers = np.repeat([0, 1, 2], [6, 5, 4])
    for example, who in enumerate(writers):
        for name in ("words", "photos"):
            (folder / name / "abc"[who] / "xyz"[example % 3]).mkdir(parents=True, exist_ok=True)
        place = f"{'abc'[who]}/{'xyz'[example % 3]}/{example}"
        wavfile.write(folder / "words" / f"{place}.wav", 16_000, (random.normal(size=2000) / 10).astype(np.float32))
        Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8)).save(folder / "photos" / f"{place}.png")
    random = np.random.default_rng(0)
    np.savez(folder / "school.npz", x=random.random((15, 2)), y=random.integers(1, 71, 15), school=writers)
    rows = [
        f"{'abc'[who]},{random.random()},{random.random()},{'yes' if random.random() < 0.5 else 'no'}"
        for who in writers
    ]
    (folder / "people.csv").write_text("\n".join(["who,age,weight,kind", *rows]))
    pd.read_csv(folder / "people.csv").to_parquet(folder / "people.parquet")
    signals = random.normal(size=(3, 9, 64 * 10)).astype(np.float32)
    windows = np.stack([signals[who, :, at : at + 128] for who in range(3) for at in range(0, 64 * 9, 64)])
    np.savez(folder / "har.npz", x=windows, y=np.arange(27) % 6, subject=np.repeat([1, 2, 3], 9))
    examples = {
        "femnist": ([0.5] * 784, 61),
        "sent140": (["1", "Mon", "NO_QUERY", "ann", "so good!", "training"], 1),
        "shakespeare": ("to be or", " "),
    }
    for name, (x, y) in examples.items():
        (folder / name).mkdir()
        of_users = {f"u{count}": {"x": [x] * count, "y": [y] * count} for count in (5, 4, 3)}
        (folder / name / "data.json").write_text(json.dumps({"users": list(of_users), "user_data": of_users}))


@pytest.mark.parametrize("name", OF_USERS)
def test_data_of_users_has_their_examples(name, folder):
    write_data_of_users(folder)
    if name == "hugging_face":
        datasets = pytest.importorskip("datasets", reason="needs pip install datasets")
        rows = {"x": [[1.0, 2.0]] * 15, "y": [0, 1, 2] * 5, "who": ["a"] * 6 + ["b"] * 5 + ["c"] * 4}
        datasets.Dataset.from_dict(rows).save_to_disk(str(folder / "saved"))
    chosen, sizes = OF_USERS[name]
    fleet = {"partition": "by_user", "fleet.devices": "null", "fleet.unseen": 1}
    config = composed(given({"data": name, **fleet, **chosen}))
    assert config.data._target_.endswith(name)
    data = federated(config)
    assert sorted(np.diff(data.offsets[:, [0, 3]]).ravel().tolist()) == sorted(sizes)
