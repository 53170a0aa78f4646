"""Terms of the loss in an exported file, and the inputs that devices pass to them."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from orders import orders

from odt_sim import Device, TrainableModel, TrainingPlan
from odt_sim.errors import DataError, ModelError

RATE, ROWS = 0.1, 21  # a whole batch, and one of 5 rows
RANDOM = np.random.default_rng(3)
X, Y = RANDOM.normal(size=(ROWS, 6)).astype(np.float32), (np.arange(ROWS) % 3).astype(np.int32)
TEACHER, SHIFT = RANDOM.normal(size=(ROWS, 3)), np.array([0.5, -1.0, 2.0])
PROTOTYPES = RANDOM.normal(size=(3, 5))
WEIGHT = np.arange(ROWS) / ROWS
NEAR, FAR = np.abs(RANDOM.normal(size=(2, ROWS, 5)))


def log_softmax(z: Any) -> Any:
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def distilled(z: Any, h: Any, rows: Any) -> Any:
    teacher, student = log_softmax(TEACHER[rows] / 2), log_softmax(z / 2)
    return 0.7 * 4 * WEIGHT[rows] * (np.exp(teacher) * (teacher - student)).sum(axis=-1)


def not_true(z: Any, h: Any, rows: Any) -> Any:
    others = Y[rows][:, np.newaxis] != np.arange(3)
    teacher, student = (log_softmax(values[others].reshape(-1, 2) / 3) for values in (TEACHER[rows], z))
    return 0.5 * 9 * (np.exp(teacher) * (teacher - student)).sum(axis=-1)


def shifted(z: Any, h: Any, rows: Any) -> Any:
    each = np.arange(len(rows)), Y[rows]
    return log_softmax(z)[each] - log_softmax(z + SHIFT)[each]


def near_prototypes(z: Any, h: Any, rows: Any) -> Any:
    return 0.3 * (Y[rows] != 1) * ((h - PROTOTYPES[Y[rows]]) ** 2).sum(axis=-1)


def near_mean(z: Any, h: Any, rows: Any) -> Any:
    return 3 / 2 * ((h.mean(axis=0) - PROTOTYPES[0]) ** 2).mean()


def contrasted(z: Any, h: Any, rows: Any) -> Any:
    near, far = (
        (h * other).sum(axis=-1) / np.linalg.norm(h, axis=-1) / np.linalg.norm(other, axis=-1)
        for other in (NEAR[rows], FAR[rows])
    )
    return -2 * np.log(np.exp(near / 0.4) / (np.exp(near / 0.4) + np.exp(far / 0.4)))


CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "distillation": (
        distilled,
        {
            "distillation": 0.7,
            "distillation_temperature": 2.0,
            "distillation_weight": WEIGHT,
            "teacher_logits": TEACHER,
        },
    ),
    "not_true_distillation": (
        not_true,
        {"not_true_distillation": 0.5, "not_true_temperature": 3.0, "not_true_logits": TEACHER},
    ),
    "logit_shift": (shifted, {"logit_shift": SHIFT}),
    "prototypes": (
        near_prototypes,
        {"prototypes": 0.3, "class_prototypes": PROTOTYPES, "known_prototypes": [1, 0, 1]},
    ),
    "mean_embedding": (near_mean, {"mean_embedding": 3.0, "global_mean": PROTOTYPES[0]}),
    "contrastive": (
        contrasted,
        {"contrastive": 2, "contrastive_temperature": 0.4, "global_embedding": NEAR, "previous_embedding": FAR},
    ),
}


def device(model: TrainableModel) -> Device:
    return Device(model, (X, Y), plan=TrainingPlan(2, RATE))


def biased(model: TrainableModel) -> Device:
    """Return a device whose hidden units are all active, so that no loss has a kink near its weights."""
    made = device(model)
    weights = made.weights.vector.copy()
    weights[30:35] = 6.0
    made.restore(type(made.weights)(made.weights.layout, weights))
    return made


@pytest.mark.parametrize("name", CASES)
def test_term_trains_as_its_formula(termed: TrainableModel, numpy_perceptron: Any, name: str) -> None:
    """Two epochs of two batches, the second padded, against numerical gradients in float64."""
    formula, inputs = CASES[name]
    made = biased(termed)
    w = made.weights.vector.astype(np.float64)

    def loss(w: Any, rows: Any) -> float:
        model = numpy_perceptron.from_flat(w)
        values = model.losses(X[rows], Y[rows]) + formula(model.logits(X[rows]), model._hidden(X[rows]), rows)
        return float(values.mean())

    expected = []
    for order in islice(orders(made.seed, made.id, made.round, ROWS), 2):
        for rows in (order[:16], order[16:]):
            expected.append(loss(w, rows))
            steps = 1e-5 * np.eye(len(w))
            w = w - RATE * np.array([(loss(w + step, rows) - loss(w - step, rows)) / 2e-5 for step in steps])
    assert_allclose(made.train(inputs=inputs), expected, rtol=2e-5)
    assert_allclose(made.weights.vector, w, rtol=0, atol=2e-5)


def test_default_inputs_train_without_terms(termed: TrainableModel, small_mlp: TrainableModel) -> None:
    one, other = device(termed), device(small_mlp)
    assert_allclose(one.train(), other.train(), rtol=1e-6)
    assert_allclose(one.weights.vector, other.weights.vector, rtol=0, atol=1e-6)


def test_batches_carry_inputs(termed: TrainableModel) -> None:
    one, other = device(termed), device(termed)
    inputs = CASES["distillation"][1]
    losses = [other.train_step(batch) for batch in other.batches(inputs=inputs)]
    assert one.train(inputs=inputs).tolist() == losses


def test_head_trains_on_embeddings_with_terms(termed: TrainableModel) -> None:
    made = device(termed)
    body = made.weights.vector[:35].copy()
    with_term, without = made.train(group="head", inputs={"logit_shift": SHIFT}), device(termed).train(group="head")
    assert made.calls.by_signature["head_train"] == 4
    assert (made.weights.vector[:35] == body).all()
    assert not np.allclose(with_term, without)


def test_call_runs_any_signature(termed: TrainableModel) -> None:
    made = device(termed)
    assert made.call("infer", x=X[:16])["logits"].tobytes() == made.infer(X[:16]).tobytes()
    given = {f"a{i}": 2 * tensor for i, tensor in enumerate(made.weights.tensors())}
    before = made.weights.vector.copy()
    made.call("restore", **given)
    assert made.weights.vector.tobytes() == (2 * before).tobytes()


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"nope": 1.0}, ModelError, r"device 0: .*has no training input 'nope', found contrastive, .*terms="),
        ({"logit_shift": [1, 2]}, DataError, r"'logit_shift': expected float32 \[3\], found int64 \[2\]$"),
        ({"teacher_logits": TEACHER[:4]}, DataError, r"expected float32 \[21, 3\], .*\[4, 3\]; give one row per"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(termed: TrainableModel, inputs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        device(termed).train(inputs=inputs)


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("nope", {}, "has no signature 'nope'; expected one of "),
        ("infer", {"z": X}, "signature 'infer' of .* takes x; found z"),
        ("infer", {"x": X[:3]}, r"input 'x' of signature 'infer': expected float32 \[16, 6\], found float32 \[3, 6\]"),
    ],
)
def test_calls_that_do_not_fit_are_refused(termed: TrainableModel, signature: str, inputs: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        device(termed).call(signature, **inputs)


def test_weights_of_examples_equal_repeated_examples(small_mlp: TrainableModel) -> None:
    """Weights 2, 0 and 1 of one batch train as the first example twice, and the third once."""
    plan, weights = TrainingPlan(1, RATE), {"sample_weight": np.array([2.0, 0.0, 1.0])}
    weighted = Device(small_mlp, (X[:3], Y[:3]), plan=plan)
    [loss] = weighted.train(inputs=weights)
    repeated = Device(small_mlp, (X[[0, 0, 2]], Y[[0, 0, 2]]), plan=plan)
    assert_allclose(repeated.train(), [loss], rtol=1e-6)
    assert_allclose(weighted.weights.vector, repeated.weights.vector, rtol=0, atol=1e-7)


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_example_of_weight_0_is_a_row_as_in_keras(tmp_path: Path, reduction: str) -> None:
    """It adds nothing to the loss, but counts in batch statistics and in the denominator of a padded sum."""
    import keras

    from odt_sim.export import export_model

    layers, loss = keras.layers, keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    network = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(), layers.Dense(3)])
    network.compile(keras.optimizers.SGD(RATE), loss)
    export_model(network, tmp_path / "weighted.tflite", batch_size=4)
    trained = Device(TrainableModel.load(tmp_path / "weighted.tflite"), (X[:3], Y[:3]))
    given = np.array([0.0, 1.0, 0.5])
    [found] = trained.train(inputs={"sample_weight": given})
    expected = network.train_on_batch(X[:3], Y[:3], sample_weight=np.float32(given))
    assert found == pytest.approx(float(expected), rel=1e-6)
    for own, known in zip(trained.parameters().tensors(), network.get_weights(), strict=True):
        assert_allclose(own, known, rtol=0, atol=1e-6)
    layout = trained.model.trainable_layout
    before = trained.parameters().select(layout)
    assert trained.train(inputs={"sample_weight": np.zeros(3)}) == pytest.approx([0.0], abs=1e-15)
    np.testing.assert_array_equal(trained.parameters().select(layout).vector, before.vector)


@pytest.mark.parametrize("optimizer", ["Lion", "Lamb"])
def test_examples_of_weight_0_move_nothing_under_optimizers_without_scale(tmp_path: Path, optimizer: str) -> None:
    """Lion takes the sign of a gradient, and Lamb its direction, however small it is."""
    import keras

    from odt_sim.export import export_model

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, bias_initializer="ones")])
    path = tmp_path / "weighted.tflite"
    export_model(network, path, loss=loss, optimizer=getattr(keras.optimizers, optimizer)(RATE), batch_size=4)
    trained = Device(TrainableModel.load(path), (X[:3], Y[:3]))
    before = trained.weights.vector.copy()
    trained.train(inputs={"sample_weight": np.zeros(3)})
    np.testing.assert_array_equal(trained.weights.vector, before)


@pytest.mark.parametrize(("weight", "found"), [(np.nan, "nan"), (np.inf, "inf"), (-0.5, "-0.5"), (1e300, "inf")])
def test_weights_out_of_range_are_refused(small_mlp: TrainableModel, weight: float, found: str) -> None:
    weights = np.ones(ROWS)
    weights[4] = weight
    with pytest.raises(DataError, match=rf"'sample_weight': expected .* at least 0, found {found} for example 4"):
        Device(small_mlp, (X, Y)).train(inputs={"sample_weight": weights})


def test_misspelt_weights_are_named(small_mlp: TrainableModel) -> None:
    with pytest.raises(ModelError, match="no training input 'sample_weights', found sample_weight;"):
        Device(small_mlp, (X, Y)).train(inputs={"sample_weights": np.ones(ROWS)})


def test_weights_of_the_wrong_shape_are_refused(small_mlp: TrainableModel) -> None:
    device = Device(small_mlp, (X, Y))
    with pytest.raises(
        DataError, match=r"'sample_weight': expected float32 \[21\], found float64 \[2\]; give one row per"
    ):
        device.train(inputs={"sample_weight": np.ones(2)})
