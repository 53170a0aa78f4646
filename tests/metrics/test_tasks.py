"""The metrics of each task, against scikit-learn and known answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as reference

from odt_sim.errors import ModelError
from odt_sim.metrics.device import mean_loss, output_figures
from odt_sim.metrics.names import canonical, first_metric, higher_is_better, is_metric, is_percent, title_of
from odt_sim.metrics.tasks import output_metrics, task_of_output
from odt_sim.model.contract.manifest import Output

SPARSE, BINARY, MSE = "sparse_categorical_crossentropy", "binary_crossentropy", "mean_squared_error"
TOKENS = Output(loss=SPARSE, from_logits=True, task="classification")
RANDOM = np.random.default_rng(0)


def given(output: Output, outputs: NDArray[Any], y: NDArray[Any], **more: Any) -> dict[str, float]:
    return output_figures(output, outputs.astype(np.float32), y, **more)


@pytest.mark.parametrize(
    ("output", "shape", "task", "metrics"),
    [
        (TOKENS, (-1, 3), "classification", ("accuracy", "loss", "balanced_accuracy", "auc")),
        (TOKENS, (8, 5, 3), "classification", ("accuracy", "loss", "balanced_accuracy", "auc", "perplexity")),
        (TOKENS, (8, 4, 4, 3), "segmentation", ("iou", "loss", "accuracy", "balanced_accuracy")),
        (replace(TOKENS, loss=BINARY), (8, 1), "classification", ("accuracy", "loss", "balanced_accuracy", "auc")),
        (replace(TOKENS, loss=BINARY), (8, 4, 4, 1), "segmentation", ("iou", "loss", "accuracy", "balanced_accuracy")),
        (Output(task="segmentation"), (8, 4, 4, 1), "segmentation", ("iou", "loss", "accuracy", "balanced_accuracy")),
        (Output(task="segmentation"), (8, 50, 3), "segmentation", ("iou", "loss", "accuracy", "balanced_accuracy")),
        (Output(loss=BINARY, task="segmentation"), (8, 4, 4, 2), "multi_label",
         ("micro_f1", "loss", "macro_f1", "exact_match", "accuracy", "auc")),
        (replace(TOKENS, loss=BINARY), (8, 6), "multi_label",
         ("micro_f1", "loss", "macro_f1", "exact_match", "accuracy", "auc")),
        (Output(loss=MSE, task="regression"), (8, 1), "regression", ("mse", "mae", "loss", "r2")),
        (Output(loss=MSE, task="regression"), (8, 2), "regression", ("mse", "mae", "loss", "r2", "mae_0", "mae_1")),
        (Output(loss=BINARY, task="ranking"), (8, 1), "ranking", ("ndcg_at_10", "loss", "hit_rate_at_10", "auc")),
        (Output(loss="my_loss"), (8, 7), "other", ("loss",)),
    ],
)  # fmt: skip
def test_metrics_follow_from_task_and_shape(output, shape, task, metrics):
    assert task_of_output(output, shape) == task
    assert output_metrics(task, shape) == metrics


def test_pixels_are_those_of_scikit_learn():
    outputs, y = RANDOM.normal(size=(3, 5, 4, 3)), RANDOM.integers(0, 3, (3, 5, 4)).astype(np.int32)
    outputs[..., 2] -= 9  # this class is never predicted
    found = given(TOKENS, outputs, y)
    flat, predicted = y.ravel(), outputs.argmax(axis=-1).ravel()
    assert found["iou"] == pytest.approx(reference.jaccard_score(flat, predicted, average="macro"))
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(flat, predicted))
    assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(flat, predicted))


def test_absent_class_does_not_count_in_the_mean_iou():
    outputs = np.log(np.array([[[[0.8, 0.1, 0.1], [0.8, 0.1, 0.1]]]]))
    assert given(TOKENS, outputs, np.array([[[0, 1]]]))["iou"] == 0.25  # 1/2 of class 0, 0 of class 1, without class 2


def test_binary_mask_has_two_classes():
    output = Output(loss=BINARY, from_logits=True, task="classification")
    outputs, y = np.array([[[[4.0], [-4.0], [4.0], [-4.0]]]]), np.array([[[[1.0], [0.0], [0.0], [0.0]]]], np.float32)
    assert given(output, outputs, y)["iou"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_several_labels_are_those_of_scikit_learn():
    output = Output(loss=BINARY, from_logits=True, task="classification", metrics=("precision", "recall"))
    outputs, y = RANDOM.normal(size=(20, 4)), (RANDOM.random((20, 4)) < 0.4).astype(np.float32)
    found, predicted = given(output, outputs, y), outputs > 0
    assert found["exact_match"] == pytest.approx(reference.accuracy_score(y, predicted))
    assert found["accuracy"] == pytest.approx(1 - reference.hamming_loss(y, predicted))
    assert found["auc"] == pytest.approx(reference.roc_auc_score(y, outputs))
    for average in ("micro", "macro"):
        assert found[f"{average}_f1"] == pytest.approx(reference.f1_score(y, predicted, average=average))
    assert found["precision"] == pytest.approx(reference.precision_score(y, predicted, average="micro"))
    assert found["recall"] == pytest.approx(reference.recall_score(y, predicted, average="micro"))


def test_several_targets_are_those_of_scikit_learn():
    named = ("mape", "rmse")
    output = Output(loss=MSE, task="regression", metrics=named)
    outputs, y = RANDOM.normal(size=(20, 3)).astype(np.float32), RANDOM.normal(size=(20, 3)).astype(np.float32)
    found = given(output, outputs, y)
    assert found["r2"] == pytest.approx(reference.r2_score(y, outputs))
    assert found["mse"] == pytest.approx(reference.mean_squared_error(y, outputs))
    errors = reference.mean_absolute_error(y, outputs, multioutput="raw_values")
    assert [found[f"mae_{target}"] for target in range(3)] == pytest.approx(errors.tolist())
    assert found["mape"] == pytest.approx(100 * reference.mean_absolute_percentage_error(y, outputs), rel=1e-6)
    assert found["rmse"] == pytest.approx(found["mse"] ** 0.5)


def test_held_out_item_is_ranked_among_sampled_ones():
    output = Output(loss=BINARY, from_logits=True, task="ranking", metrics=("hit_rate_at_2",))
    scores = np.array([[3.0], [5.0], [4.0], [1.0]])  # the first item is the held-out one: third of four
    found = given(output, scores, np.array([[1], [0], [0], [0]], np.float32))
    assert (found["hit_rate_at_10"], found["hit_rate_at_2"], found["ndcg_at_10"]) == (1, 0, pytest.approx(0.5))
    assert found["auc"] == pytest.approx(1 / 3)


def test_auc_of_a_ranking_is_the_mean_over_its_queries():
    output = Output(loss="categorical_crossentropy", from_logits=True, task="ranking")
    queries = np.array([[2.0, 1.0, 0.0], [12.0, 13.0, 11.0], [30.0, 20.0, 25.0]])  # the last one has nothing relevant
    y = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0]], np.float32)
    assert given(output, queries, y)["auc"] == pytest.approx((1 + 0.5) / 2)
    assert "auc" not in given(output, queries[2:], y[2:])


def test_rows_of_candidates_are_queries_like_those_of_scikit_learn():
    output = Output(loss="categorical_crossentropy", task="ranking", metrics=("ndcg_at_3",))
    scores, y = RANDOM.normal(size=(6, 12)), (RANDOM.random((6, 12)) < 0.3).astype(np.float32)
    y[:, 0] = 1
    found = given(output, scores, y)
    assert found["ndcg_at_3"] == pytest.approx(reference.ndcg_score(y, scores, k=3))
    assert found["ndcg_at_10"] == pytest.approx(reference.ndcg_score(y, scores, k=10))


def test_equal_scores_find_nothing():
    found = given(Output(loss=BINARY, task="ranking"), np.zeros((50, 1)), np.eye(50, dtype=np.float32)[:, :1])
    assert (found["hit_rate_at_10"], found["ndcg_at_10"]) == (0, 0)


def test_query_without_a_relevant_candidate_has_no_rank():
    found = given(Output(loss=BINARY, task="ranking"), np.zeros((5, 1)), np.zeros((5, 1), np.float32))
    assert {*found} == {"loss", "examples"}


def test_only_positions_of_the_mask_count():
    outputs, y = RANDOM.normal(size=(3, 4, 5)), RANDOM.integers(0, 5, (3, 4))
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    found, counts = given(TOKENS, outputs, y, mask=mask), mask.astype(bool)
    alone = given(TOKENS, outputs[counts][:, np.newaxis], y[counts][:, np.newaxis])
    assert {**found, "examples": 6} == pytest.approx(alone)
    assert found["examples"] == 3
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]))
    losses = np.array([1.0, 4.0, 0.0])  # of 2, 4 and no positions
    assert mean_loss(Output(), outputs, y, losses=losses, mask=mask) == 3.0


def test_batch_without_a_position_that_counts_has_no_metrics():
    found = given(TOKENS, np.zeros((2, 3, 4)), np.zeros((2, 3)), mask=np.zeros((2, 3)))
    assert found == {"examples": 2}


def test_names_of_keras_are_ours():
    names = (
        "acc",
        "SparseTopKCategoricalAccuracy",
        "MeanAbsolutePercentageError",
        "F1Score",
        "ndcg_at_20",
        "top_3",
        "auc_1",
    )
    assert [*map(canonical, names)] == ["accuracy", "top_5", "mape", "macro_f1", "ndcg_at_20", "top_3", "auc"]
    with pytest.raises(
        ModelError, match=r"^metric 'true_positives': expected one of acc, accuracy, .*; leave it out, or"
    ):
        canonical("true_positives")
    with pytest.raises(ModelError, match=r"^metric 'top_5': is not defined for regression; leave it out$"):
        output_metrics("regression", (8, 1), ["top_k_categorical_accuracy"])
    with pytest.raises(ModelError, match=r"^metric 'mae': is not defined for this loss; leave it out, or run with met"):
        output_metrics("other", (8, 3), ["mae"])


def test_metric_of_an_output_is_of_its_kind():
    assert [higher_is_better(m) for m in ("mae_0", "accuracy_digit", "loss_age", "hit_rate_at_5")] == [0, 1, 0, 1]
    assert [is_percent(m) for m in ("iou", "balanced_accuracy_digit", "auc", "state_bytes")] == [1, 1, 0, 0]
    titles = ("mae_0", "ndcg_at_10", "top_5", "accuracy_digit", "micro_f1", "fine_tune_epochs")
    expected = ["MAE of target 0", "NDCG at 10", "top 5 accuracy", "accuracy of digit", "micro F1", "fine tune epochs"]
    assert [*map(title_of, titles)] == expected
    assert not is_metric("train_calls")
    assert first_metric(["validation_devices", "validation_iou", "validation_loss"], "validation_") == "iou"
