"""Training, inference and evaluation with several inputs or outputs equal numpy."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from odt_sim.errors import DataError

RANDOM = np.random.default_rng(3)
USER, ITEM = RANDOM.integers(0, 5, 14), RANDOM.integers(0, 6, 14)
RATING = (USER + ITEM) % 4
FEATURES = RANDOM.normal(size=(14, 6)).astype(np.float32)
KIND, SIZE = RANDOM.integers(0, 3, 14), RANDOM.normal(size=14).astype(np.float32)
RATE = 0.3

Weights = dict[str, NDArray[np.float64]]


def weights_of(device: Device) -> Weights:
    weights = device.parameters()
    return {name: weights[name].astype(np.float64) for name in weights.layout.names}


def error_of(logits: NDArray[np.float64], labels: NDArray[Any]) -> tuple[float, NDArray[np.float64]]:
    """Return the mean cross-entropy, and its gradient by the logits."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(len(labels)), labels]).mean()
    return float(loss), (p - np.eye(logits.shape[1])[labels]) / len(labels)


def recommender_step(w: Weights, rows: NDArray[np.int64]) -> float:
    user, item = USER[rows], ITEM[rows]
    h = np.concatenate([w["users/embeddings"][user], w["items/embeddings"][item]], axis=1)
    loss, error = error_of(h @ w["rating/kernel"] + w["rating/bias"], RATING[rows])
    back = error @ w["rating/kernel"].T
    w["rating/kernel"] -= RATE * h.T @ error
    w["rating/bias"] -= RATE * error.sum(axis=0)
    np.add.at(w["users/embeddings"], user, -RATE * back[:, :3])
    np.add.at(w["items/embeddings"], item, -RATE * back[:, 3:])
    return loss


def heads_step(w: Weights, rows: NDArray[np.int64]) -> float:
    x = FEATURES[rows].astype(np.float64)
    h = x @ w["hidden/kernel"] + w["hidden/bias"]
    entropy, of_kind = error_of(h @ w["kind/kernel"] + w["kind/bias"], KIND[rows])
    difference = (h @ w["size/kernel"] + w["size/bias"])[:, 0] - SIZE[rows]
    of_size = (0.5 * 2 * difference / len(rows))[:, np.newaxis]
    back = of_kind @ w["kind/kernel"].T + of_size @ w["size/kernel"].T
    for name, error, given in (("kind", of_kind, h), ("size", of_size, h), ("hidden", back, x)):
        w[f"{name}/kernel"] -= RATE * given.T @ error
        w[f"{name}/bias"] -= RATE * error.sum(axis=0)
    return entropy + 0.5 * float((difference**2).mean())


DATA = {
    "recommender": (({"item": ITEM, "user": USER}, RATING), recommender_step),
    "heads": ((FEATURES, (KIND, SIZE)), heads_step),
}


@pytest.mark.parametrize("name", DATA)
def test_two_steps_equal_numpy(name: str, request: pytest.FixtureRequest) -> None:
    """The second batch has 6 real rows of 8."""
    model: TrainableModel = request.getfixturevalue(name)
    data, step = DATA[name]
    device = Device(model, data, seed=1, id=2)
    w = weights_of(device)
    order = device.random("batches", 0).permutation(14)
    losses = device.train(1, RATE)
    expected = [step(w, order[:8]), step(w, order[8:])]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for key, value in weights_of(device).items():
        np.testing.assert_allclose(value, w[key], rtol=1e-4, atol=1e-6, err_msg=key)


def test_inputs_are_taken_by_name_or_by_position(recommender: TrainableModel) -> None:
    device = Device(recommender, ((USER, ITEM), RATING))
    by_name = device.infer({"item": ITEM, "user": USER})
    w = weights_of(device)
    h = np.concatenate([w["users/embeddings"][USER], w["items/embeddings"][ITEM]], axis=1)
    np.testing.assert_allclose(by_name, h @ w["rating/kernel"] + w["rating/bias"], rtol=1e-5, atol=1e-6)
    assert by_name.tobytes() == device.infer((USER, ITEM)).tobytes() == device.infer([USER, ITEM]).tobytes()


def test_outputs_and_figures_have_the_outputs_names(heads: TrainableModel) -> None:
    device = Device(heads, (FEATURES, {"size": SIZE, "kind": KIND}), test=(FEATURES[:9], (KIND[:9], SIZE[:9])))
    outputs = device.infer(FEATURES[:9])
    assert outputs.names == ("kind", "size")
    kind, size = outputs.column("kind"), outputs.column("size")[:, 0]
    entropy, _ = error_of(kind.astype(np.float64), KIND[:9])
    squared = float(((size.astype(np.float64) - SIZE[:9]) ** 2).mean())
    figures = device.evaluate()
    assert figures["examples"] == 9
    assert figures["accuracy_kind"] == pytest.approx((kind.argmax(axis=1) == KIND[:9]).mean())
    assert figures["loss_kind"] == pytest.approx(entropy, rel=1e-5)
    assert figures["mse_size"] == pytest.approx(squared, rel=1e-5)
    assert figures["loss"] == pytest.approx(entropy + 0.5 * squared, rel=1e-5)
    assert device.loss("test") == pytest.approx(figures["loss"])


def test_both_heads_train_on_embeddings(heads: TrainableModel) -> None:
    device = Device(heads, (FEATURES, (KIND, SIZE)), seed=1)
    hidden = device.parameters()["hidden/kernel"].copy()
    losses = device.train(3, RATE, group="head")
    assert losses[-1] < losses[0]
    assert np.array_equal(device.parameters()["hidden/kernel"], hidden)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            USER,
            RATING,
            r"device 0, train, x: expected the arrays user, item, found a single array; pass a mapping by name",
        ),
        (
            {"user": USER, "movie": ITEM},
            RATING,
            r"x: expected the arrays user, item, found user, movie; use the same names",
        ),
        ((USER, ITEM, ITEM), RATING, r"x: expected the arrays user, item, found 3 without names"),
        ((USER, ITEM[:5]), RATING, r"x: lengths differ: 0 \[14\], 1 \[5\]; each array needs one row"),
        ((USER, ITEM), (RATING, RATING), r"y: expected a single array, found 2: 0 \[14\], 1 \[14\]; pass one"),
        ((USER, ITEM + 0.5), RATING, r"x, item: expected int32, found float64; convert it"),
        ((USER, ITEM), RATING + 2, r"train, y: label \d is out of range, recommender has classes 0..3"),
    ],
)
def test_examples_that_do_not_fit_are_refused(x: Any, y: Any, message: str, recommender: TrainableModel) -> None:
    with pytest.raises(DataError, match=message):
        Device(recommender, (x, y))


def test_a_given_batch_trains_like_one_of_the_device(recommender: TrainableModel) -> None:
    device = Device(recommender, ((USER, ITEM), RATING))
    w = weights_of(device)
    loss = device.train_batch({"item": ITEM[:8], "user": USER[:8]}, RATING[:8], RATE)
    assert loss == pytest.approx(recommender_step(w, np.arange(8)), rel=1e-5)
