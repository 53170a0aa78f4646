import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from written_runs import complete_run

from odt_sim.report.columns import COSTS
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import Spread
from odt_sim.report.pareto_plot import Point, draw_pareto, fronts, points
from odt_sim.report.selection import Selection
from odt_sim.report.style import DPI, LIGHT, on_figure

MEGABYTES, TRAIN_CALLS, *_ = COSTS


def row(label, score, megabytes, calls=None, *, std=None, data="digits"):
    summary = {"strategy": label.split(" ")[0], "seed": 0, "task": "classification", "settings": {"data": data}}
    summary |= {"bytes_down": 1e6 * megabytes, "bytes_up": 0}
    summary |= {} if calls is None else {"train_calls": calls, "deploy_train_calls": 10}
    run = complete_run(label, summary)
    return Configuration(label, (run,), {"weighted_mean": Spread(score, std)}, Selection(label, 1))


def comparison(rows, metric="accuracy"):
    return Comparison(metric, None, tuple(rows), (), ())


def front(rows, metric="accuracy"):
    return [[point.row.label for point in best] for best in fronts(points(comparison(rows, metric), MEGABYTES), metric)]


def draw(rows, cost=MEGABYTES):
    with matplotlib.rc_context(LIGHT.settings()):
        figure = Figure(dpi=DPI, layout="constrained")
        on_figure(draw_pareto, comparison(rows), cost=cost)(figure)
        figure.draw_without_rendering()
    return figure


def test_front_has_undominated_points_only():
    rows = [
        row("dear", 0.9, 5),
        row("cheap", 0.5, 1),
        row("beaten", 0.5, 2),
        row("worse", 0.4, 1),
        row("middle", 0.7, 2),
    ]
    assert front(rows) == [["cheap", "middle", "dear"]]


def test_smaller_error_is_on_the_front():
    assert front([row("a", 0.5, 1), row("b", 0.4, 2), row("c", 0.6, 3)], "mse") == [["a", "b"]]


def test_equals_are_both_on_the_front():
    assert front([row("a", 0.5, 1), row("b", 0.5, 1)]) == [["a", "b"]]


def test_each_data_has_its_own_front():
    assert front([row("a", 0.9, 1), row("b", 0.5, 2, data="mnist")]) == [["a"], ["b"]]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_points_off_the_front_are_dominated_by_it(values):
    drawn = [Point(row(str(i), y / 5, x), Spread(x, None), Spread(y / 5, None)) for i, (x, y) in enumerate(values)]
    (best,) = fronts(drawn, "accuracy")
    for point in drawn:
        beaten = [b for b in best if b.cost.mean <= point.cost.mean and b.score.mean >= point.score.mean]
        assert beaten
        assert (point in best) == all((b.cost, b.score) == (point.cost, point.score) for b in beaten)


def test_deployment_counts_as_training():
    assert [point.cost.mean for point in points(comparison([row("a", 0.5, 1, 40)]), TRAIN_CALLS)] == [50]
    assert points(comparison([row("a", 0.5, 1)]), TRAIN_CALLS) == []


@pytest.mark.parametrize("count", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_names_cover_neither_each_other_nor_points(count):
    random = np.random.default_rng(0)
    rows = [
        row(f"strategy_{i} a.learning_rate={i}", random.normal(0.8, 0.03), random.choice([10, 10.5, 20]), std=0.02)
        for i in range(count)
    ]
    figure = draw(rows)
    (axes,) = figure.axes
    boxes = np.array([Text.get_window_extent(text).extents for text in axes.texts if text.get_text()])
    assert len(boxes) == count
    area = axes.get_window_extent().extents
    assert np.all(boxes[:, :2] >= area[:2] - 1)
    assert np.all(boxes[:, 2:] <= area[2:] + 1)
    centres = axes.transData.transform(
        [(r.runs[0].complete.bytes_down / 1e6, 100 * r.values["weighted_mean"].mean) for r in rows]
    )
    dots = np.concatenate([centres - 7, centres + 7], axis=1)
    obstacles = np.concatenate([boxes, dots])
    for number, box in enumerate(boxes):
        others = np.delete(obstacles, number, axis=0)
        apart = (others[:, :2] >= box[2:] - 1).any(axis=1) | (others[:, 2:] <= box[:2] + 1).any(axis=1)
        assert apart.all()


def test_front_is_drawn_and_bold():
    figure = draw([row("local", 0.5, 0), row("fedavg", 0.7, 10), row("ditto", 0.6, 20)])
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_path().vertices, [(0, 50), (10, 50), (10, 70)])
    assert {text.get_text(): text.get_weight() for text in axes.texts} == {
        "local": "bold",
        "fedavg": "bold",
        "ditto": "normal",
    }


@pytest.mark.parametrize(
    ("costs", "scale"), [((10, 20), "linear"), ((0, 20), "linear"), ((1, 50), "log"), ((0, 1, 50), "symlog")]
)
def test_wide_span_of_costs_has_a_logarithmic_axis(costs, scale):
    (axes,) = draw([row(f"s{cost}", 0.5, cost) for cost in costs]).axes
    assert axes.get_xscale() == scale
    axes.figure.draw_without_rendering()
    assert "$" not in "".join(tick.label1.get_text() for tick in axes.xaxis.get_major_ticks())
    assert all(text.get_text().startswith("s") for text in axes.texts)
