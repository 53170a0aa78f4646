"""Metrics of the user: what they receive and return, and which names they may have."""

import functools

import numpy as np
import pytest

from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.metrics.names import higher_is_better, is_metric, is_percent, title_of
from odt_sim.metrics.own import own_figures, own_metrics
from odt_sim.metrics.rounds import check_target

OUTPUTS = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], np.float32)
LABELS = np.array([1, 1, 1])


def share_right(outputs, targets):
    return (outputs.argmax(axis=1) == targets).mean()


def largest_miss(outputs, targets):
    return float(np.abs(outputs[np.arange(len(targets)), targets] - 1).max())


largest_miss.higher_is_better = False


def test_function_takes_outputs_and_targets():
    metrics = own_metrics([share_right, largest_miss])
    assert [metric.name for metric in metrics] == ["share_right", "largest_miss"]
    found = own_figures(metrics, {"": OUTPUTS}, {"": LABELS})
    assert found == {"share_right": pytest.approx(2 / 3), "largest_miss": pytest.approx(0.8)}
    assert all(type(value) is float for value in found.values())


def test_function_may_change_its_arrays():
    def sorts(outputs, targets):
        outputs.sort(axis=1)
        targets += 1
        return float(outputs[0, 1])

    outputs, labels = OUTPUTS.copy(), LABELS.copy()
    found = own_figures(own_metrics([sorts, share_right]), {"": outputs}, {"": labels})
    assert found == {"sorts": pytest.approx(0.9), "share_right": pytest.approx(2 / 3)}
    np.testing.assert_array_equal(outputs, OUTPUTS)
    np.testing.assert_array_equal(labels, LABELS)


def test_single_function_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"metrics: expected a list of functions, found share_right; write \[share"
    ):
        own_metrics(share_right)


def test_reports_know_the_direction():
    own_metrics([share_right, largest_miss])
    assert (higher_is_better("share_right"), higher_is_better("largest_miss")) == (True, False)
    assert is_metric("largest_miss")
    assert not is_percent("largest_miss")
    assert title_of("largest_miss") == "largest miss"
    assert not is_metric("largest")


def test_several_outputs_are_mappings_by_name():
    def agreement(outputs, targets):
        return sum(float((outputs[name].argmax(axis=1) == targets[name]).mean()) for name in ("a", "b"))

    answers, y = {"a": OUTPUTS, "b": OUTPUTS}, {"a": LABELS, "b": 1 - LABELS}
    assert own_figures(own_metrics([agreement]), answers, y) == {"agreement": pytest.approx(2 / 3 + 1 / 3)}


def test_positions_that_do_not_count_are_left_out():
    outputs = np.stack([OUTPUTS, OUTPUTS])  # [examples, positions, classes]
    y = np.array([[1, 0, 0], [0, 0, 1]])
    mask = np.array([[1, 1, 0], [0, 0, 1]])
    assert own_figures(own_metrics([share_right]), {"": outputs}, {"": y}, {"": mask}) == {"share_right": 1.0}


@pytest.mark.parametrize("undefined", [None, float("nan")])
def test_undefined_figure_is_absent(undefined):
    def sometimes(outputs, targets):
        return undefined

    assert own_figures(own_metrics([sometimes]), {"": OUTPUTS}, {"": LABELS}) == {}


def test_failing_function_is_named_with_its_line():
    def broken(outputs, targets):
        return outputs.nothing

    with pytest.raises(
        SimulationError, match=r"metric broken: failed on device 3 with AttributeError: .*test_own\.py:\d+"
    ):
        own_figures(own_metrics([broken]), {"": OUTPUTS}, {"": LABELS}, device=3)

    def wordy(outputs, targets):
        return "good"

    with pytest.raises(SimulationError, match="it returned str, expected a number or None"):
        own_figures(own_metrics([wordy]), {"": OUTPUTS}, {"": LABELS})


def accuracy(outputs, targets):
    return 1.0


def mae_kw(outputs, targets):
    return 1.0


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([accuracy], "metrics: accuracy is already the name of a metric; rename the function"),
        ([mae_kw], "^metrics: mae_kw would be read as MAE of kw; rename the function$"),
        ([share_right, share_right], "metrics: share_right is already the name of a metric"),
        (
            [lambda outputs, targets: 1.0],
            "metrics: expected functions with a name, found <lambda>; define them with def",
        ),
        ([3], "metrics: expected functions with a name, found int"),
    ],
)
def test_unusable_names_are_refused(functions, message):
    with pytest.raises(ConfigurationError, match=message):
        own_metrics(functions)


def test_partial_has_the_name_that_it_is_given():
    named = functools.partial(share_right)
    named.__name__ = "share"
    assert own_metrics([named])[0].name == "share"


def test_partial_has_the_name_and_the_direction_of_its_function():
    [metric] = own_metrics([functools.partial(functools.partial(largest_miss))])
    assert (metric.name, metric.higher_is_better) == ("largest_miss", False)


def test_target_of_a_metric_of_the_user_may_be_negative():
    def minus_cost(outputs, targets):
        return -1.0

    own_metrics([minus_cost])
    check_target(-0.5, "minus_cost", "run.target")


def surprising(outputs, targets, train):
    """Return the share of outputs that are larger than all of training."""
    return (outputs > train[0].max()).mean()


def test_parameter_train_receives_the_training_examples():
    metrics = own_metrics([surprising, share_right, functools.partial(largest_miss)])
    assert [metric.uses_train for metric in metrics] == [True, False, False]
    train = {"answers": {"": OUTPUTS - 0.15}, "y": {"": LABELS}, "masks": {"": np.array([0, 1, 1])}}
    found = own_figures(metrics, {"": OUTPUTS}, {"": LABELS}, train=lambda: train)
    assert found["surprising"] == pytest.approx(3 / 6)  # 0.9, 0.8, 0.7 are above 0.65; the row of 0.75 is masked
    assert found["share_right"] == pytest.approx(2 / 3)


def test_metric_of_training_examples_is_undefined_without_them():
    assert own_figures(own_metrics([surprising, share_right]), {"": OUTPUTS}, {"": LABELS}).keys() == {"share_right"}


def test_training_examples_are_not_computed_for_nothing():
    own_figures(own_metrics([share_right]), {"": OUTPUTS}, {"": LABELS}, train=lambda: pytest.fail("not used"))
