"""Wrong arguments of public functions raise an error of one line that names the argument."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from odt_sim import Device, Results, TrainableModel, Weights
from odt_sim._support.checks import names_arguments
from odt_sim.conf.demo_data import arm
from odt_sim.data import Dataset, FederatedData, check_leakage, federate, iid, images, keras_dataset, npz, rotation
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import ConfigurationError, DataError, OdtSimError
from odt_sim.metrics.own import own_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X, Y = np.zeros((4, 6), np.float32), np.zeros(4, np.int32)


@names_arguments
def call(
    path: str | os.PathLike[str] = "",
    count: int | None = None,
    share: float = 0.5,
    kind: Literal["a", "b"] = "a",
    names: Sequence[str] = (),
    table: Mapping[str, int] | None = None,
    function: Callable[..., int] = int,
    data: FederatedData | None = None,
    axes: "Axes | None" = None,
    error: type[Exception] = TypeError,
) -> None:
    raise error("within")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": None}, "path: expected a path, found None"),
        ({"count": "3"}, "count: expected a whole number or None, found '3'"),
        ({"count": True}, "count: expected a whole number or None, found True"),
        ({"share": [1]}, "share: expected a number, found a list"),
        ({"kind": "c"}, "kind: expected 'a' or 'b', found 'c'"),
        ({"kind": np.zeros(2)}, "kind: expected 'a' or 'b', found a ndarray"),
        ({"names": "ab"}, "names: expected a list, found 'ab'"),
        ({"names": 300 * "ab"}, "names: expected a list, found text of 600 characters"),
        ({"table": 3}, "table: expected a mapping or None, found 3"),
        ({"function": "int"}, "function: expected a function, found 'int'"),
        ({"data": FederatedData}, "data: expected a FederatedData or None, found the class FederatedData"),
        ({"path": 1, "error": AttributeError}, "path: expected a path, found 1"),
    ],
)
def test_argument_of_another_type_is_named(given, message):
    with pytest.raises(ConfigurationError, match=f"^call: {re.escape(message)}$"):
        call(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": "a", "count": np.int64(3), "share": 1, "names": np.zeros(2), "axes": 3},
        {"count": "3", "error": KeyError},
    ],
)
def test_other_errors_pass(given):
    with pytest.raises(given.get("error", TypeError), match="within"):
        call(**given)


def test_calls_without_an_argument_end_with_pythons_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'path'"):
        npz()


MISTAKES = {
    "TrainableModel(path)": (
        lambda m: TrainableModel("m.tflite"),
        r"TrainableModel: .* use TrainableModel\.load",
    ),
    "load": (lambda m: TrainableModel.load(None), r"TrainableModel\.load: path: expected a path, found None"),
    "from_content": (lambda m: TrainableModel.from_content("m"), r"content: expected bytes, found 'm'"),
    "Results": (
        lambda m: Results("runs"),
        r"Results: expected loaded runs; load folders with Results\.load",
    ),
    "Weights": (
        lambda m: Weights(m.layout, [1.0]),
        r"weights: expected a layout.*, found a Layout and a list; build",
    ),
    "zeros": (lambda m: Weights.zeros(3), r"Weights\.zeros: layout: expected a Layout, found 3"),
    "from_tensors": (lambda m: Weights.from_tensors(3, []), r"from_tensors: layout: expected a Layout, found 3"),
    "own_metrics": (lambda m: own_metrics(3), r"own_metrics: functions: expected a list, found 3"),
    "npz": (lambda m: npz(3), r"npz: path: expected a path, found 3"),
    "images": (lambda m: images([]), r"images: path: expected a path, found a list"),
    "keras_dataset": (lambda m: keras_dataset(None), r"keras_dataset: name: expected text, found None"),
    "arm": (lambda m: arm(users="3"), r"data.users: expected a number of at least 1, found '3'"),
    "leakage": (lambda m: check_leakage(Dataset("d", X, Y)), r"data: expected a FederatedData, found a Dataset"),
    "rotation": (lambda m: rotation(X, 0), r"rotation: data: expected a FederatedData, found a ndarray"),
    "iid": (lambda m: iid(X, 2, 0), r"iid: dataset: expected a Dataset, found a ndarray"),
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
    "save": (lambda m: Device(m, (X, Y)).save(None), r"Device\.save: path: expected a path, found None"),
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
