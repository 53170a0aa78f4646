"""Results, tensors and blocks in the form that processes exchange."""

from dataclasses import fields

import numpy as np
import pytest

from odt_sim import Weights
from odt_sim.model.manifest import Parameter
from odt_sim.model.weights import Layout
from odt_sim.simulation.job import Task, Trained
from odt_sim.simulation.processes.mailbox import Mailbox
from odt_sim.simulation.processes.plain import (
    plain_result,
    plain_tasks,
    plain_tensors,
    result_of,
    tasks_of,
    tensors_of,
)
from odt_sim.strategies.base import Update

LAYOUT = Layout((Parameter("dense/kernel", (2, 3), "float32", "trainable", "head"),))
ARRAYS = {
    "numbers": np.arange(6, dtype=np.float64),
    "image": np.ones((2, 0, 3), np.float32),
    "count": np.array(3),
    "columns": np.arange(12, dtype=np.int16).reshape(3, 4).T,
    "complex": np.array([1j]),
}


@pytest.fixture
def mailbox():
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


def sent(mailbox, plain):
    """Return the value that another process reads."""
    mailbox.write(0, *plain)
    return mailbox.view(0)


def test_tensors_come_back(mailbox):
    tensors = {"weights": Weights(LAYOUT, np.arange(6, dtype=np.float32)), **ARRAYS}
    found = tensors_of(*sent(mailbox, plain_tensors(tensors)))
    assert list(found) == list(tensors)
    assert found["weights"].layout == LAYOUT
    np.testing.assert_array_equal(found["weights"].vector, np.arange(6, dtype=np.float32), strict=True)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_a_sum_comes_back_with_all_fields(mailbox):
    update = Update({"numbers": ARRAYS["numbers"]}, 2.0, np.zeros(1, np.float32))
    values = {
        "sums": ARRAYS,
        "layouts": {"weights": LAYOUT, "numbers": None},
        "each": {4: update},
        "unweighted": frozenset({"numbers"}),
        "contributed": [4],
        "single": True,
    }
    given = Trained(**{field.name: values.get(field.name, getattr(Trained(), field.name)) for field in fields(Trained)})
    found = result_of(*sent(mailbox, plain_result(given)))
    for field in fields(Trained):
        own, expected = getattr(found, field.name), getattr(given, field.name)
        if field.name == "sums":
            for name, array in expected.items():
                np.testing.assert_array_equal(own[name], array, strict=True)
        elif field.name == "each":
            np.testing.assert_array_equal(own[4].tensors["numbers"], ARRAYS["numbers"], strict=True)
        else:
            assert own == expected


@pytest.mark.parametrize("value", [[{"device": 1}], None])
def test_other_results_come_as_they_are(value, mailbox):
    assert result_of(*sent(mailbox, plain_result(value))) == value


def test_blocks_come_back():
    tasks = [Task("train", 3, (1, 2), {1: 2}, frozenset({2}), {1: 5}, {2: 0.5}, 4, True), Task("final", 1, (0,))]
    assert tasks_of(plain_tasks(tasks)) == tasks
