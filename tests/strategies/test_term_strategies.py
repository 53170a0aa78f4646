"""Strategies that train with terms of the loss, against plain numpy: numerical gradients in float64."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from odt_sim import Fleet, Strategy, TrainableModel
from odt_sim.errors import StrategyError
from odt_sim.model.contract.manifest import METADATA_NAME
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import ServerState, Update, Updates
from odt_sim.strategies.losses.feddistill import FedDistill
from odt_sim.strategies.losses.fedlc import FedLC
from odt_sim.strategies.losses.fedntd import FedNTD
from odt_sim.strategies.losses.fedproto import FedProto, NearestPrototype, mean_prototypes
from odt_sim.strategies.losses.moon import Moon
from odt_sim.strategies.shared_parts.feddbe import FedDBE
from odt_sim.strategies.shared_parts.fedrod import FedRoD
from odt_sim.strategies.two_models.fedphp import FedPHP

RATE, EPOCHS = 0.1, 2  # as in the runs, see conftest
CLOSE = {"rtol": 0, "atol": 3e-5}


def log_softmax(z: Any) -> Any:
    return z - np.log(np.exp(z - z.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)) - z.max(-1, keepdims=True)


def descend(
    twin: Any, w: Any, device: int, round: int, term: Any, trained: Any = slice(None), epochs: int = EPOCHS
) -> Any:
    """Train on the mean of `losses + term(model, x, y)` of each batch."""

    def loss(w: Any, x: Any, y: Any) -> float:
        model = twin.at(w)
        return float((model.losses(x, y) + term(model, x, y)).mean())

    steps = 1e-6 * np.eye(len(w))[trained]
    for x, y in twin.batches(device, round, range(epochs)):
        w = w.copy()
        w[trained] -= RATE * np.array([(loss(w + step, x, y) - loss(w - step, x, y)) / 2e-6 for step in steps])
    return w


def counts(twin: Any, device: int) -> Any:
    return np.bincount(twin.part("train", device)[1], minlength=3)


def shifted(shift: Any) -> Any:
    def term(model: Any, x: Any, y: Any) -> Any:
        z, each = model.logits(x), (np.arange(len(y)), y)
        return log_softmax(z)[each] - log_softmax(z + shift)[each]

    return term


def test_fedlc(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedLC(tau=2.0), termed, rounds=2)
    w = small_twin.initial
    for round in (1, 2):
        shifts = [
            np.where(n > 0, -2.0 * np.maximum(n, 1) ** -0.25, -1e4) for n in (counts(small_twin, i) for i in range(3))
        ]
        w = small_twin.mean([descend(small_twin, w, device, round, shifted(shifts[device])) for device in range(3)])
    assert_allclose(run.weights.vector, w, **CLOSE)


def test_fedntd(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedNTD(beta=0.5, temperature=2.0), termed, rounds=2)

    def kept(teacher: Any) -> Any:
        def term(model: Any, x: Any, y: Any) -> Any:
            others = y[:, np.newaxis] != np.arange(3)
            t, z = (log_softmax(of.logits(x)[others].reshape(-1, 2) / 2) for of in (teacher, model))
            return 0.5 * 4 * (np.exp(t) * (t - z)).sum(axis=-1)

        return term

    w = small_twin.initial
    for round in (1, 2):
        term = kept(small_twin.at(w))
        w = small_twin.mean([descend(small_twin, w, device, round, term) for device in range(3)])
    assert_allclose(run.weights.vector, w, **CLOSE)


def test_moon(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(Moon(mu=2.0, temperature=0.5), termed, rounds=2)

    def cosine(a: Any, b: Any) -> Any:
        return (a * b).sum(-1) / np.sqrt(((a**2).sum(-1) + 1e-12) * ((b**2).sum(-1) + 1e-12))

    def contrast(near: Any, far: Any) -> Any:
        def term(model: Any, x: Any, y: Any) -> Any:
            g, p = (np.exp(cosine(model._hidden(x), of._hidden(x)) / 0.5) for of in (near, far))
            return -2 * np.log(g / (g + p))

        return term

    w = small_twin.initial
    last = [w] * 3
    for round in (1, 2):
        terms = [contrast(small_twin.at(w), small_twin.at(own)) for own in last]
        last = [descend(small_twin, w, device, round, terms[device]) for device in range(3)]
        w = small_twin.mean(last)
    assert_allclose(run.weights.vector, w, **CLOSE)


def test_feddbe(small_twin: Any, termed: TrainableModel) -> None:
    """The bias b trains with the weights, after a first round without it."""
    run, strength = small_twin.run(FedDBE(strength=2.0), termed, rounds=3), 2.0
    parts = [small_twin.part("train", device) for device in range(3)]

    def loss(values: Any, x: Any, y: Any, mean: Any) -> float:
        model, b = small_twin.at(values[:53]), values[53:]
        h = model._hidden(x)
        z = (h + b) @ model.w[35:50].reshape(5, 3) + model.w[50:]
        return float(
            -log_softmax(z)[np.arange(len(y)), y].mean() + strength * ((h.mean(axis=0) - mean) ** 2).mean() / 2
        )

    models = [small_twin.descend(small_twin.initial, device, 1) for device in range(3)]
    each = [small_twin.at(w)._hidden(x).mean(axis=0) for w, (x, _) in zip(models, parts, strict=True)]
    w, mean, biases = small_twin.mean(models), small_twin.mean(each), [np.zeros(5)] * 3
    steps = 1e-6 * np.eye(58)
    for round in (2, 3):
        for device in range(3):
            values = np.concatenate([w, biases[device]])
            for x, y in small_twin.batches(device, round):
                slopes = [loss(values + s, x, y, mean) - loss(values - s, x, y, mean) for s in steps]
                values = values - RATE * np.array(slopes) / 2e-6
            models[device], biases[device] = values[:53], values[53:]
        w = small_twin.mean(models)
    assert_allclose(run.broadcast["mean"], mean, rtol=0, atol=1e-5)
    assert_allclose(run.weights.vector, w, **CLOSE)
    for device, b in enumerate(biases):
        assert_allclose(run.device(device).state["bias"], b, **CLOSE)
        expected = w.copy()
        expected[50:] += b @ w[35:50].reshape(5, 3)
        assert_allclose(run.deployed(device).vector, expected, **CLOSE)
        assert np.abs(b).max() > 0.01


def test_feddbe_gives_an_unseen_device_the_global_weights(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedDBE(), termed, rounds=2, fleet=Fleet(unseen=1))
    np.testing.assert_array_equal(run.deployed(run.unseen).vector, run.weights.vector)


def test_feddbe_refuses_a_head_of_two_layers(termed: TrainableModel) -> None:
    parameters = tuple(replace(parameter, group="head") for parameter in termed.manifest.parameters)
    manifest = replace(termed.manifest, parameters=parameters)
    other = TrainableModel.from_content(with_metadata(termed.content, METADATA_NAME, manifest.to_json().encode()))
    with pytest.raises(
        StrategyError, match=r"strategy feddbe: needs a head of one linear layer.* has \[\[6, 5\], \[5\], "
    ):
        FedDBE().check(other)


def test_fedphp(small_twin: Any, termed: TrainableModel) -> None:
    """The private model is a third of 0.9, two thirds of 0.9 and so on of itself."""
    run = small_twin.run(FedPHP(0.5, 2.0, momentum=0.9, participations=3), termed, rounds=3)

    def taught(teacher: Any) -> Any:
        def term(model: Any, x: Any, y: Any) -> Any:
            t, z = (log_softmax(of.logits(x) / 2) for of in (teacher, model))
            return 0.5 * 4 * (np.exp(t) * (t - z)).sum(axis=-1)

        return term

    w, own = small_twin.initial, [None] * 3
    for round, weight in enumerate((0.0, 0.3, 0.6), 1):
        terms = [taught(small_twin.at(w if p is None else p)) if round > 1 else lambda *_: 0.0 for p in own]
        models = [descend(small_twin, w, device, round, terms[device]) for device in range(3)]
        own = [model if p is None else weight * p + (1 - weight) * model for p, model in zip(own, models, strict=True)]
        w = small_twin.mean(models)
    assert_allclose(run.weights.vector, w, **CLOSE)
    for device in range(3):
        assert_allclose(run.deployed(device).vector, own[device], **CLOSE)


def test_fedphp_trains_an_unseen_device_from_the_global_weights(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedPHP(unseen_epochs=3), termed, rounds=2, fleet=Fleet(unseen=1))
    unseen = run.unseen
    expected = small_twin.descend(run.weights.vector, unseen, 2, range(3))
    assert_allclose(run.deployed(unseen).vector, expected, rtol=0, atol=1e-5)


def test_fedproto(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedProto(strength=0.5), termed, rounds=2)
    models, prototypes, known = [small_twin.initial] * 3, np.zeros((3, 5)), np.zeros(3)

    def towards(model: Any, x: Any, y: Any) -> Any:
        return 0.5 * known[y] * ((model._hidden(x) - prototypes[y]) ** 2).sum(axis=-1)

    for round in (1, 2):
        models = [descend(small_twin, w, device, round, towards) for device, w in enumerate(models)]
        hidden = [small_twin.at(w)._hidden(small_twin.part("train", i)[0]) for i, w in enumerate(models)]
        labels = np.concatenate([small_twin.part("train", device)[1] for device in range(3)])
        every = np.concatenate(hidden)
        known = np.isin(np.arange(3), labels).astype(float)
        prototypes = np.array([every[labels == c].mean(axis=0) if known[c] else np.zeros(5) for c in range(3)])
    assert_allclose(run.broadcast["prototypes"], prototypes, rtol=0, atol=1e-4)
    for device, w in enumerate(models):
        assert_allclose(run.deployed(device).vector, w, **CLOSE)
    assert {row["state_bytes"] for row in run.rows} == {4 * termed.layout.size}
    for row, w in zip(run.rows, models, strict=True):
        x, y = small_twin.part("test", row["device"])
        apart = ((small_twin.at(w)._hidden(x)[:, np.newaxis] - prototypes) ** 2).sum(axis=-1)
        assert row["accuracy"] == (apart.argmin(axis=1) == y).mean()
        assert row["loss"] == pytest.approx(-log_softmax(-apart)[np.arange(len(y)), y].mean(), abs=1e-4)


def test_class_without_prototype_is_never_nearest() -> None:
    prototypes, embeddings = np.array([[0.0, 0], [3, 4], [9, 9]]), np.array([[9.0, 9], [0, 0]], np.float32)
    known = np.array([True, True, False])
    answers = NearestPrototype(prototypes, known, from_logits=False)(embeddings, np.zeros((2, 3)))
    ratio = np.exp(-25)
    assert_allclose(answers, [[0, 1, 0], [1 / (1 + ratio), ratio / (1 + ratio), 0]], atol=1e-12)
    logits = NearestPrototype(prototypes, known, from_logits=True)(embeddings, np.zeros((2, 3)))
    assert logits.argmax(axis=1).tolist() == [1, 0]
    assert np.isfinite(logits).all()


def test_fedproto_sends_prototypes_alone(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedProto(), termed, rounds=2, fleet=Fleet(unseen=1))
    assert set(run.broadcast) == {"prototypes", "counts"}
    unseen = run.device(run.unseen)
    before = unseen.weights.vector.copy()
    assert not np.array_equal(run.deployed(unseen.id).vector, before)


def test_feddistill(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedDistill(gamma=0.5), termed, rounds=3)
    models, answers = [small_twin.initial] * 3, np.zeros((3, 3, 3))

    def others(device: int) -> Any:
        rest = np.delete(answers, device, axis=0)
        return rest.sum(axis=0) / np.maximum(rest.any(axis=-1).sum(axis=0), 1)[:, np.newaxis]

    def like(taught: Any) -> Any:
        def term(model: Any, x: Any, y: Any) -> Any:
            p = taught[y]
            return -0.5 * (p * log_softmax(model.logits(x))).sum(axis=-1)

        return term

    for round in (1, 2, 3):
        models = [descend(small_twin, w, device, round, like(others(device))) for device, w in enumerate(models)]
        answers = np.zeros((3, 3, 3))
        for device, w in enumerate(models):
            x, y = small_twin.part("train", device)
            q = np.exp(log_softmax(small_twin.at(w).logits(x)))
            answers[device] = [q[y == c].mean(axis=0) if (y == c).any() else np.zeros(3) for c in range(3)]
    for device, w in enumerate(models):
        assert_allclose(run.deployed(device).vector, w, **CLOSE)
        received = run.strategy.message(run.commit.state, device)["answers"]
        assert_allclose(received, others(device), rtol=0, atol=1e-5)
    assert {row["state_bytes"] for row in run.rows} == {4 * termed.layout.size}


def test_feddistill_averages_the_answers_of_other_devices() -> None:
    """Of two classes, device 7 has both, device 12 the first; a class that no other device has is left out."""
    both, first = np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([[0.25, 0.75], [0, 0]])
    each = {id: Update({"answers": rows}, 1.0, np.zeros(1, np.float32)) for id, rows in ((7, both), (12, first))}
    strategy = FedDistill()
    state = strategy.aggregate(ServerState({}), Updates({}, 2.0, 2, 3, each))
    received = {device: strategy.message(state, device)["answers"].tolist() for device in (7, 12, 3)}
    mean = [[0.5, 0.5], [0.5, 0.5]]
    assert received == {7: first.tolist(), 12: both.tolist(), 3: mean}
    assert strategy.message(ServerState({}), 7) == {}


def test_feddistill_sends_answers_alone(small_twin: Any, termed: TrainableModel) -> None:
    """9 probabilities down and up; an unseen device trains before deployment."""
    run = small_twin.run(FedDistill(), termed, rounds=3, fleet=Fleet(unseen=1))
    assert run.traffic == [(0, 72), (72, 72), (72, 72)]
    unseen = run.device(run.unseen)
    before = unseen.weights.vector.copy()
    assert not np.array_equal(run.deployed(unseen.id).vector, before)


def test_fedrod(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedRoD(), termed, rounds=2)
    head = slice(35, 53)
    w, personal = small_twin.initial, [np.zeros(18)] * 3
    for round in (1, 2):
        models = []
        for device in range(3):
            n = counts(small_twin, device)
            shift = np.where(n > 0, np.log(np.maximum(n, 1)), -1e4)
            models.append(descend(small_twin, w, device, round, shifted(shift)))
            both = models[-1].copy()
            both[head] += personal[device]
            both = descend(small_twin, both, device, round, lambda *_: 0.0, head)
            personal[device] = both[head] - models[-1][head]
        w = small_twin.mean(models)
    assert_allclose(run.weights.vector, w, **CLOSE)
    for device in range(3):
        expected = w.copy()
        expected[head] += personal[device]
        assert_allclose(run.deployed(device).vector, expected, **CLOSE)


@pytest.mark.parametrize("strategy", [FedNTD(beta=0), Moon(mu=0)], ids=["fedntd", "moon"])
def test_zero_factor_is_fedavg(small_twin: Any, termed: TrainableModel, strategy: Strategy) -> None:
    run, plain = (small_twin.run(each, termed, rounds=2) for each in (strategy, FedAvg()))
    assert_allclose(run.weights.vector, plain.weights.vector, rtol=0, atol=1e-6)


def test_prototype_of_a_negative_count_is_zero() -> None:
    """A hostile device that flips the sign of its message makes a count negative."""
    sent = {"prototypes": np.array([[-2, 4], [6, 3]], np.float32), "counts": np.array([-1, 3], np.float32)}
    np.testing.assert_array_equal(mean_prototypes({}, sent)["prototypes"], [[0, 0], [2, 1]])


def test_class_that_no_device_has_keeps_its_prototype_and_count() -> None:
    before = {"prototypes": np.array([[1, 1], [2, 2]], np.float32), "counts": np.array([3, 1], np.float32)}
    sent = {"prototypes": np.array([[0, 0], [6, 4]], np.float32), "counts": np.array([0, 2], np.float32)}
    after = mean_prototypes(before, sent)
    np.testing.assert_array_equal(after["prototypes"], [[1, 1], [3, 2]])
    np.testing.assert_array_equal(after["counts"], [3, 2])
