"""Fine-tuning against plain numpy; epochs are chosen on validation examples only."""

from typing import Any

import numpy as np

from odt_sim import Device, TrainableModel
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.shared_parts.fedper import FedPer

MAX_EPOCHS, RATE = 6, 0.1


def test_agrees_with_numpy(twin: Any, numpy_softmax: Any) -> None:
    run = twin.run(FedAvgFineTune(MAX_EPOCHS))
    chosen, models = [], []
    for device in range(3):
        tuned = [numpy_softmax.of(*run.weights.tensors())]
        for epoch in range(MAX_EPOCHS):
            tuned.append(tuned[-1].copy())
            twin.train(tuned[-1], device, run.rounds, [epoch])
        losses = [twin.loss(model, device, "validation") for model in tuned]
        chosen.append(int(np.argmin(losses)))
        models.append(tuned[chosen[-1]])
    assert [row["fine_tune_epochs"] for row in run.rows] == chosen
    assert any(chosen)
    twin.assert_rows(run.rows, models)
    for device, model in enumerate(models):
        np.testing.assert_allclose(run.deployed(device).tensors()[0], model.kernel, rtol=0, atol=1e-5)


def test_training_equals_fedavg(twin: Any) -> None:
    tuned, plain = twin.run(FedAvgFineTune(2)), twin.run(FedAvg())
    np.testing.assert_array_equal(tuned.weights.vector, plain.weights.vector)
    assert [row["global_loss"] for row in tuned.rows] == [row["loss"] for row in plain.rows]


def test_zero_epochs_equals_fedavg(twin: Any) -> None:
    tuned, plain = twin.run(FedAvgFineTune(0)), twin.run(FedAvg())
    assert tuned.figures == [{**row, "fine_tune_epochs": 0} for row in plain.figures]


def test_choice_ignores_test_examples(twin: Any) -> None:
    """Other test labels keep choice and weights; other validation labels change them."""
    run = twin.run(FedAvgFineTune(MAX_EPOCHS))
    for split, same in (("test", True), ("validation", False)):
        other = twin.run(FedAvgFineTune(MAX_EPOCHS), data=twin.relabelled(split))
        np.testing.assert_array_equal(other.weights.vector, run.weights.vector)
        pairs = [(a["fine_tune_epochs"], b["fine_tune_epochs"]) for a, b in zip(run.rows, other.rows, strict=True)]
        assert all(a == b for a, b in pairs) is same
        if same:
            for device in range(3):
                np.testing.assert_array_equal(other.deployed(device).vector, run.deployed(device).vector)


def test_no_validation_examples_keeps_global_weights(twin: Any) -> None:
    run = twin.run(FedAvgFineTune(MAX_EPOCHS), data=twin.without_validation(1))
    assert run.rows[1]["fine_tune_epochs"] == 0
    np.testing.assert_array_equal(run.deployed(1).vector, run.weights.vector)


def test_own_parameters_are_fine_tuned_too(twin: Any, split_softmax: TrainableModel) -> None:
    """A subclass may share fewer parameters."""

    class FineTunedFedPer(FedAvgFineTune, FedPer):
        pass

    run = twin.run(FineTunedFedPer(0), split_softmax)
    plain = twin.run(FedPer(), split_softmax)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, plain.deployed(device).vector)


def head_tuned(twin: Any, w: Any, head: slice, device: int, round: int) -> list[Any]:
    """Return the weights after each epoch of training only the head."""
    found = []
    for epoch in range(MAX_EPOCHS):
        w = w.copy()
        for x, y in twin.batches(device, round, [epoch]):
            w[head] -= RATE * twin.gradient(w, x, y)[head]
        found.append(w)
    return found


def test_head_tuning_by_writing_back_agrees_with_numpy(twin: Any, split_softmax: TrainableModel) -> None:
    """The model's head is its bias, and there is no `train_head`."""
    assert "train_head" not in split_softmax.capabilities
    run = twin.run(FedAvgFineTune(MAX_EPOCHS, layers="head"), split_softmax)
    w = run.weights.vector.astype(np.float64)
    for device in range(3):
        found = [w, *head_tuned(twin, w, slice(-10, None), device, run.rounds)]
        chosen = int(np.argmin([twin.loss(twin.at(tuned), device, "validation") for tuned in found]))
        assert run.rows[device]["fine_tune_epochs"] == chosen
        np.testing.assert_allclose(run.deployed(device).vector, found[chosen], rtol=0, atol=1e-5)
        np.testing.assert_array_equal(run.deployed(device).tensors()[0], run.weights.tensors()[0])
    assert any(row["fine_tune_epochs"] for row in run.rows)


def test_chosen_layers_have_the_best_validation_loss(small_twin: Any, small_mlp: TrainableModel) -> None:
    """All layers and the head each win on some device; the head trains by `train_head`."""
    assert "train_head" in small_mlp.signatures
    run = small_twin.run(FedAvgFineTune(MAX_EPOCHS, layers="chosen"), rounds=8)
    w, whole = run.weights.vector.astype(np.float64), set()
    for device in range(3):
        every = [small_twin.descend(w, device, run.rounds, range(epochs)) for epochs in range(MAX_EPOCHS + 1)]
        found = [*every, *head_tuned(small_twin, w, small_twin.model.head, device, run.rounds)]
        chosen = int(np.argmin([small_twin.loss(small_twin.at(tuned), device, "validation") for tuned in found]))
        head, row = int(chosen > MAX_EPOCHS), run.rows[device]
        assert (row["fine_tune_head"], row["fine_tune_epochs"]) == (head, chosen - MAX_EPOCHS * head)
        np.testing.assert_allclose(run.deployed(device).vector, found[chosen], rtol=0, atol=1e-5)
        whole.add(head)
    assert whole == {0, 1}


def test_head_is_tuned_in_the_same_batches_after_all_layers(small_mlp: TrainableModel) -> None:
    """Forty examples are three batches, which depend on the epoch."""
    heads = 0
    for seed in range(12):
        random = np.random.default_rng(seed)
        x, y = random.normal(size=(60, 6)).astype(np.float32), random.integers(0, 3, 60)
        device, alone = (Device(small_mlp, (x[:40], y[:40]), (x[40:], y[40:]), seed=seed) for _ in range(2))
        found, head = (
            FedAvgFineTune(MAX_EPOCHS, layers=layers).deploy(each, {"weights": each.initial})
            for each, layers in ((device, "chosen"), (alone, "head"))
        )
        if device.records["fine_tune_head"]:
            heads += 1
            np.testing.assert_array_equal(found.vector, head.vector)
    assert heads


def test_head_is_tuned_on_embeddings_in_inference_mode(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(FedAvgFineTune(MAX_EPOCHS, layers="head"), grouped)
    below = grouped.layout.select(lambda p: p.group != "head")
    tuned = [row["device"] for row in run.rows if row["fine_tune_epochs"]]
    assert tuned
    for id in tuned:
        device = run.device(id)
        device.restore(run.weights)
        device.train(run.rows[id]["fine_tune_epochs"], group="head")
        np.testing.assert_array_equal(run.deployed(id).vector, device.parameters().vector)
        np.testing.assert_array_equal(run.deployed(id).select(below).vector, run.weights.select(below).vector)
