"""Every metric is declared, and computed in Python and by the page for phones."""

import inspect
import re
from importlib.resources import files

import pytest

from odt_sim.metrics.answers import Classes, Labels, Ranked, Values
from odt_sim.metrics.names import KINDS
from odt_sim.metrics.scores import Transcripts
from odt_sim.metrics.tasks import ANSWERS, TASK_METRICS, is_computed

ON_THE_PAGE = {
    Values: ("ofValues",),
    Classes: ("ofClasses",),
    Labels: ("ofScores",),
    Ranked: ("ofScores", "ofRanking"),
}
"""The functions of `phone/page/answers.js` by the classes whose twins they are."""


def metrics_of(kind: type) -> set[str]:
    """Return the metrics that a class computes: its public methods."""
    return {name for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_each_method_is_a_declared_metric() -> None:
    computed = set().union(*map(metrics_of, (*ON_THE_PAGE, Transcripts)))
    assert computed | {"loss"} == KINDS.keys()


def test_each_task_computes_its_metrics() -> None:
    assert TASK_METRICS.keys() == ANSWERS.keys()
    assert all(is_computed(metric, task) for task, metrics in TASK_METRICS.items() for metric in metrics)


@pytest.mark.parametrize("kind", ON_THE_PAGE)
def test_page_computes_the_same_metrics(kind: type) -> None:
    page = files("odt_sim.phone").joinpath("page/answers.js").read_text()
    bodies = [page.split(f"function {name}(")[1].split("\n}")[0] for name in ON_THE_PAGE[kind]]
    found = {metric for body in bodies for metric in re.findall(r"^    (\w+)[:,]", body.split("  return {")[1], re.M)}
    tasks = [task for task, answers in ANSWERS.items() if answers is kind]
    assert found >= {name for name in metrics_of(kind) if any(is_computed(name, task) for task in tasks)}
