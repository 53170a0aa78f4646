"""Session fixtures: shared models, exported once in another process so that this one does not load TensorFlow."""

import gc
import hashlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from exporter import EXPORTER
from filelock import FileLock
from fork_server import ForkServer
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from odt_sim import Strategy, TrainableModel
from odt_sim.cli.hydra.build import model_file
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data.store import folders as store
from odt_sim.export import cache
from odt_sim.export.cache import TERM_NAMES, default_directory, exported
from odt_sim.model.reading import verification
from odt_sim.persistence import storage

pytest_plugins = ["crashes"]

settings.register_profile(
    "odt_sim", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # slowness of a busy machine is not a bug
settings.load_profile("odt_sim")

# TensorFlow's gradients of dilated convolutions need oneDNN, and its default depends on the processor.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# Additional threads of TensorFlow busy-wait, and each core runs a pytest process.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

collect_ignore = [] if version("tensorflow").startswith("2.19.") else ["flex"]  # those run by `make test-flex`
collect_ignore += [] if find_spec("flwr") else ["flower"]  # those run by `make test-flower`

FOREIGN = Path(__file__).parent / "model" / "foreign_models.py"
SMALL_MLP = {"_target_": "odt_sim.export.zoo.mlp", "input_shape": [6], "classes": 3, "hidden": [5]}
NETWORKS = [str(Path(__file__).parent / "networks")]
TRANSFER = {
    "sys_path": NETWORKS,
    "train_groups": ["head", "body", "norm", "body_norm"],
}
LINEAR = {"_target_": "odt_sim.export.zoo.softmax_regression", "input_shape": [6], "classes": 2}
CLOUDS = {**LINEAR, "classes": 3}
SMALL = {"loss": "sparse_categorical_crossentropy", "batch_size": 4, "seed": 0}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect garbage rarely, without the objects of test collection, since it is slow with many objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, *gc.get_threshold()[1:])
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files: first those with slow tests, which other hooks have marked by now, then by number of tests."""
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("phone")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in long, -tests[item.path]))


@pytest.fixture(scope="session", autouse=True)
def forked_exports() -> Iterator[None]:
    """Export each model in a fork of one process, which imports TensorFlow once."""
    with pytest.MonkeyPatch.context() as patch, closing(EXPORTER):
        patch.setattr(cache, "run", EXPORTER.run)
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_verifications() -> Iterator[None]:
    """Verify each file in a fork of one process, which imports LiteRT once."""
    with pytest.MonkeyPatch.context() as patch, closing(ForkServer()) as server:
        patch.setattr(verification, "run", server.run)
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Skip fsync in this process, which matters only after a power failure; commands still sync."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: None, raising=False)
        for module in (storage, store):
            patch.setattr(module, "sync_file_system", lambda folder: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Parse each configuration file of installed packages once; each composition gets a copy, which it may change."""
    load, known = ConfigRepository.load_config, dict[tuple[str, str, str], Any]()

    def load_config(repository: ConfigRepository, config_path: str) -> Any:
        source = repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "pkg":
            return load(repository, config_path)
        key = source.provider, source.path, config_path
        if key not in known:
            known[key] = load(repository, config_path)
        return deepcopy(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigRepository, "load_config", load_config)
        yield


@pytest.fixture(autouse=True)
def same_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore `sys.exit` after each test, because W&B replaces it for the whole process."""
    monkeypatch.setattr(sys, "exit", sys.exit)


@pytest.fixture
def control_groups(tmp_path: Path) -> Callable[[str, Mapping[str, str]], tuple[Path, Path]]:
    """Return a function that writes control group files; it returns their folder and the file of a process's groups."""

    def write(own: str, limits: Mapping[str, str]) -> tuple[Path, Path]:
        (tmp_path / "own").write_text(own)
        for name, text in limits.items():
            (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "groups" / name).write_text(f"{text}\n")
        return tmp_path / "groups", tmp_path / "own"

    return write


@pytest.fixture(scope="session")
def configured() -> Callable[[str], TrainableModel]:
    """Return a function that exports a model of `conf/model` by name."""
    return _configured


@pytest.fixture(scope="session")
def digits_cnn(configured: Callable[[str], TrainableModel]) -> TrainableModel:
    """The default CNN: [16, 8, 8, 1] to 10 classes, plain SGD."""
    return configured("digits_cnn")


@pytest.fixture(scope="session")
def digits_mlp(configured: Callable[[str], TrainableModel]) -> TrainableModel:
    """A perceptron with one hidden layer: [16, 8, 8, 1] to 10 classes, plain SGD."""
    return configured("digits_mlp")


@pytest.fixture(scope="session")
def softmax(configured: Callable[[str], TrainableModel]) -> TrainableModel:
    """Softmax regression: [16, 8, 8, 1] to 10 classes, plain SGD; `NumpySoftmax` is the same in numpy."""
    return configured("softmax")


@pytest.fixture(scope="session")
def softmax_with_offset() -> TrainableModel:
    """Softmax regression with a gradient offset in its steps; with `softmax`, the host adds the offset."""
    return _configured("softmax", "model.name=softmax_with_offset", "model.gradient_offset=true")


@pytest.fixture(scope="session")
def softmax_with_embedding() -> TrainableModel:
    """Softmax regression with an embedding, the flattened example."""
    return _configured("softmax", "model.name=softmax_with_embedding", "model.embed=true")


@pytest.fixture(scope="session")
def of_small_images() -> Callable[[str], Path]:
    """Return a function that exports a model of `conf/model` for inputs [8, 32, 32, 3] with seed 4."""
    chosen = ["model.build.input_shape=[32,32,3]", "model.batch_size=8", "model.seed=4"]
    return lambda name: model_file(composed([f"model={name}", *chosen]))


@pytest.fixture(scope="session")
def momentum() -> TrainableModel:
    """A small perceptron, [4, 6] to 3 classes, with one optimizer slot per parameter."""
    return _small("momentum", SMALL_MLP, {"name": "SGD", "momentum": 0.9})


@pytest.fixture(scope="session")
def adam() -> TrainableModel:
    """A small perceptron, [4, 6] to 3 classes, with two optimizer slots per parameter and a step count."""
    return _small("adam", SMALL_MLP, {"name": "Adam"})


@pytest.fixture(scope="session")
def small_mlp() -> TrainableModel:
    """A small perceptron, [16, 6] to 3 classes, plain SGD, with train groups head and body; see `NumpyPerceptron`."""
    return _small("small_mlp", SMALL_MLP, {"name": "SGD"}, batch_size=16, train_groups=["head", "body"])


@pytest.fixture(scope="session")
def termed() -> TrainableModel:
    """The perceptron of `small_mlp` with all terms, with embeddings and a gradient offset."""
    terms = [*TERM_NAMES, "prox"]
    more = {"batch_size": 16, "train_groups": ["head", "body"], "embed": True, "terms": terms}
    return _small("termed", SMALL_MLP, {"name": "SGD"}, **more)


@pytest.fixture(scope="session")
def regression() -> TrainableModel:
    """Linear regression, [4, 6] to 2 values, with the mean squared error."""
    return _small("regression", LINEAR, {"name": "SGD"}, loss="mean_squared_error")


@pytest.fixture(scope="session")
def binary() -> TrainableModel:
    """Logistic regression, [4, 6] to 1 logit, with the binary cross entropy."""
    return _small("binary", {**LINEAR, "classes": 1}, {"name": "SGD"}, loss="binary_crossentropy")


@pytest.fixture(scope="session")
def several_labels() -> TrainableModel:
    """Logistic regressions, [4, 6] to 3 logits of independent labels, with the binary cross entropy."""
    return _small("several_labels", {**LINEAR, "classes": 3}, {"name": "SGD"}, loss="binary_crossentropy")


@pytest.fixture(scope="session")
def one_hot() -> TrainableModel:
    """Softmax regression, [4, 6] to 2 classes, with the categorical cross entropy of one-hot rows."""
    return _small("one_hot", LINEAR, {"name": "SGD"}, loss="categorical_crossentropy")


@pytest.fixture(scope="session")
def any_rows() -> TrainableModel:
    """Softmax regression, [any, 6] to 3 classes, plain SGD."""
    return _small("any_rows", CLOUDS, {"name": "SGD"}, batch_size=None)


@pytest.fixture(scope="session")
def rows_of_32() -> TrainableModel:
    """Softmax regression, [32, 6] to 3 classes, plain SGD."""
    return _small("rows_of_32", CLOUDS, {"name": "SGD"}, batch_size=32)


@pytest.fixture(scope="session")
def dropout() -> TrainableModel:
    """A small transformer with Dropout 0.5, [4, 4] words of 10 to 3 classes."""
    sizes = {"length": 4, "words": 10, "classes": 3, "width": 4, "heads": 1, "blocks": 1, "dropout": 0.5}
    build = {"_target_": "odt_sim.export.zoo.transformer_encoder", **sizes}
    return _small("dropout", build, {"name": "SGD"})


@pytest.fixture(scope="session")
def grouped() -> TrainableModel:
    """`networks/transfer.py`, [4, 6] to 3 classes, plain SGD, with all train groups, embeddings and a gradient offset."""
    return _transfer("grouped", embed=True, gradient_offset=True)


@pytest.fixture(scope="session")
def with_adapters() -> TrainableModel:
    """The perceptron of `small_mlp` with an adapter of rank 4 on its fixed hidden layer."""
    return _small("with_adapters", SMALL_MLP, {"name": "SGD"}, batch_size=16, lora_rank=4)


@pytest.fixture(scope="session")
def model_for(request: pytest.FixtureRequest, grouped: TrainableModel) -> Callable[[Strategy], TrainableModel]:
    """Return a function that returns a model with all capabilities that a shipped strategy needs."""

    def model(strategy: Strategy) -> TrainableModel:
        fits = strategy.needed(grouped) <= grouped.capabilities
        other = "with_adapters" if strategy.name == "lora" else "termed"
        return grouped if fits else request.getfixturevalue(other)

    return model


@pytest.fixture(scope="session")
def grouped_without_offset() -> TrainableModel:
    """`networks/transfer.py` without gradient offset and embeddings."""
    return _transfer("grouped_without_offset")


@pytest.fixture(scope="session")
def frozen() -> TrainableModel:
    """`networks/transfer.py` with a frozen body: the head trains on examples or embeddings."""
    return _transfer("frozen", {"frozen": True}, train_groups=[], embed=True)


@pytest.fixture(scope="session")
def sampling() -> TrainableModel:
    """`networks/sampling.py` that samples, [4, 6] to 3 classes, with Adam."""
    return _sampling("sampling", counts=False)


@pytest.fixture(scope="session")
def counting() -> TrainableModel:
    """`networks/sampling.py` that counts its calls, [4, 6] to 3 classes, with Adam."""
    return _sampling("counting", counts=True)


@pytest.fixture(scope="session")
def adam_head() -> TrainableModel:
    """`networks/transfer.py` without Dropout, with Adam, train groups and embeddings."""
    return _transfer("adam_head", {"dropout": 0.0}, embed=True, optimizer={"name": "Adam"})


@pytest.fixture(scope="session")
def recommender() -> TrainableModel:
    """`networks/several.py`: two ids, [8] each, to 4 classes, plain SGD; the embeddings of the ids are the body."""
    build = {"_target_": "several.recommender"}
    return _small("recommender", build, {"name": "SGD"}, batch_size=8, sys_path=NETWORKS, train_groups=["body"])


@pytest.fixture(scope="session")
def recommender_of_own_loss() -> TrainableModel:
    """The network of `recommender` with a user-defined loss and int32 labels."""
    build = {"_target_": "several.recommender"}
    return _small("own_loss", build, {"name": "SGD"}, batch_size=8, sys_path=NETWORKS, loss="several.distance")


@pytest.fixture(scope="session")
def heads() -> TrainableModel:
    """`networks/several.py`: [8, 6] to 3 classes and a value, with loss weight 0.5; plain SGD, with embeddings."""
    loss = {"kind": "sparse_categorical_crossentropy", "size": "mean_squared_error"}
    more = {"loss": loss, "loss_weights": {"kind": 1.0, "size": 0.5}, "batch_size": 8, "embed": True}
    return _small("heads", {"_target_": "several.heads"}, {"name": "SGD"}, sys_path=NETWORKS, **more)


@pytest.fixture(scope="session")
def adam_with_offset() -> TrainableModel:
    """The perceptron of `adam` with a gradient offset."""
    return _small("adam_with_offset", SMALL_MLP, {"name": "Adam"}, gradient_offset=True)


@pytest.fixture(scope="session")
def foreign() -> Path:
    """Return the folder of files exported by another tool, without a manifest; see `model/foreign_models.py`."""
    key = hashlib.sha256(FOREIGN.read_bytes() + version("tensorflow").encode()).hexdigest()[:16]
    folder = default_directory() / f"foreign-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            temporary = Path(tempfile.mkdtemp(dir=folder.parent))
            EXPORTER.program(FOREIGN, temporary)
            temporary.rename(folder)
    return folder


@dataclass
class NumpySoftmax:
    """Softmax regression in float64: the reference for a step of gradient descent on the mean cross entropy.

    Attributes:
        kernel: `[features, classes]`.
        bias: `[classes]`.
    """

    kernel: NDArray[np.float64]
    bias: NDArray[np.float64]

    @classmethod
    def of(cls, kernel: NDArray[Any], bias: NDArray[Any]) -> "NumpySoftmax":
        return cls(kernel.astype(np.float64), bias.astype(np.float64))

    def copy(self) -> "NumpySoftmax":
        return NumpySoftmax(self.kernel.copy(), self.bias.copy())

    @classmethod
    def from_flat(cls, flat: NDArray[Any], classes: int) -> "NumpySoftmax":
        """The inverse of `flat`."""
        return cls.of(flat[:-classes].reshape(-1, classes), flat[-classes:])

    def flat(self) -> NDArray[np.float64]:
        """Kernel and bias in one vector, in the order of the model's weights."""
        return np.concatenate([self.kernel.ravel(), self.bias])

    def logits(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return x.reshape(len(x), len(self.kernel)).astype(np.float64) @ self.kernel + self.bias

    def losses(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        return -np.log(self._probabilities(x)[np.arange(len(y)), y])

    def step(self, x: NDArray[Any], y: NDArray[Any], rate: float) -> float:
        """Take one descent step and return the loss before it."""
        loss = float(self.losses(x, y).mean())
        gradient = self.gradient(x, y)
        self.kernel -= rate * gradient.kernel
        self.bias -= rate * gradient.bias
        return loss

    def gradient(self, x: NDArray[Any], y: NDArray[Any]) -> "NumpySoftmax":
        """The gradient of the mean cross entropy, in the shapes of the weights."""
        error = (self._probabilities(x) - np.eye(len(self.bias))[y]) / len(y)
        return NumpySoftmax(x.reshape(len(x), len(self.kernel)).astype(np.float64).T @ error, error.sum(axis=0))

    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        exponentials = np.exp(self.logits(x))
        return exponentials / exponentials.sum(axis=1, keepdims=True)


@dataclass
class NumpyPerceptron:
    """`small_mlp` in float64: one hidden layer of 5 with a ReLU, from 6 features to 3 classes.

    Attributes:
        w: `[53]`, the weights in the order of the model's own: hidden kernel and bias, then the head's.
    """

    w: NDArray[np.float64]
    head: ClassVar = slice(35, 53)

    @classmethod
    def from_flat(cls, flat: NDArray[Any], classes: int = 3) -> "NumpyPerceptron":
        return cls(flat.astype(np.float64))

    def flat(self) -> NDArray[np.float64]:
        return self.w

    def logits(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._hidden(x) @ self.w[35:50].reshape(5, 3) + self.w[50:]

    def losses(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        return -np.log(self._probabilities(x)[np.arange(len(y)), y])

    def gradient(self, x: NDArray[Any], y: NDArray[Any]) -> "NumpyPerceptron":
        """The gradient of the mean cross entropy."""
        hidden = self._hidden(x)
        error = (self._probabilities(x) - np.eye(3)[y]) / len(y)
        inner = error @ self.w[35:50].reshape(5, 3).T * (hidden > 0)
        parts = [x.T.astype(np.float64) @ inner, inner.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        return NumpyPerceptron(np.concatenate([part.ravel() for part in parts]))

    def _hidden(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return np.maximum(x.astype(np.float64) @ self.w[:30].reshape(6, 5) + self.w[30:35], 0)

    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        exponentials = np.exp(self.logits(x))
        return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.fixture(scope="session")
def numpy_perceptron() -> type[NumpyPerceptron]:
    return NumpyPerceptron


@pytest.fixture(scope="session")
def numpy_softmax() -> type[NumpySoftmax]:
    return NumpySoftmax


def _configured(name: str, *overrides: str) -> TrainableModel:
    """Return a model of `conf/model`, exported as by the command, so that both share the cached file."""
    return TrainableModel.load(model_file(composed([f"model={name}", *overrides])))


def _small(name: str, build: dict[str, Any], optimizer: dict[str, Any], **more: Any) -> TrainableModel:
    return TrainableModel.load(exported({**SMALL, "name": name, "build": build, "optimizer": optimizer, **more}))


def _transfer(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> TrainableModel:
    build = {"_target_": "transfer.build", **(arguments or {})}
    return _small(name, build, **{"optimizer": {"name": "SGD"}, **TRANSFER, **options})


def _sampling(name: str, *, counts: bool) -> TrainableModel:
    build = {"_target_": "sampling.build", "counts": counts}
    return _small(name, build, {"name": "Adam"}, sys_path=NETWORKS)
