"""Krum and multi-Krum against plain loops, and their choice."""

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odt_sim.aggregators import Krum
from odt_sim.aggregators.krum import squared_distances
from odt_sim.errors import ConfigurationError

NEAR = ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5])
FAR = ([50.0, 50.0], [51.0, 50.0])
ROWS = arrays(np.float32, (9, 4), elements=st.floats(-100, 100, width=32))


def test_aggregator_shows_its_settings() -> None:
    assert repr(Krum(selected=3)) == "Krum(hostile=0.2, selected=3)"


def scores(rows: Any, hostile: int) -> list[float]:
    """The sums of the squared distances to the n - f - 2 nearest others, in the paper's notation."""
    n = len(rows)
    apart = [[float(((a - b) ** 2).sum()) for b in rows.astype(np.float64)] for a in rows.astype(np.float64)]
    return [sum(sorted(apart[i][:i] + apart[i][i + 1 :])[: n - hostile - 2]) for i in range(n)]


def test_known_answers(combined: Any) -> None:
    np.testing.assert_array_equal(combined(Krum(0.2), *FAR, *NEAR), [0.5, 0.5])  # 2 f + 3 = 7
    np.testing.assert_allclose(
        combined(Krum(0.2, selected=3), *FAR, *NEAR), [0.5, 0.5 / 3], rtol=1e-6
    )  # ties: the first
    np.testing.assert_array_equal(combined(Krum(0, selected=1), *[[2.0]] * 3), [2.0])


@given(rows=ROWS, hostile=st.integers(0, 3), selected=st.integers(1, 4))
def test_agrees_with_plain_loops(combined: Any, rows: Any, hostile: int, selected: int) -> None:
    """Scores of whole numbers are exact, so that rounding does not decide."""
    rows = np.round(rows)
    chosen = sorted(np.argsort(scores(rows, hostile), kind="stable")[:selected])
    found = combined(Krum(hostile / 9, selected), *rows)
    np.testing.assert_allclose(found, rows[chosen].mean(axis=0, dtype=np.float64), rtol=1e-6)


@given(rows=ROWS, where=st.sets(st.integers(0, 8), max_size=3), factor=st.floats(1e4, 1e30))
def test_distant_hostile_devices_are_not_chosen(combined: Any, rows: Any, where: set[int], factor: float) -> None:
    for place, id in enumerate(where):
        rows[id] = factor * (place + 1)
    honest = np.delete(rows, list(where), axis=0)
    for selected in (1, 4):
        found = combined(Krum(3 / 9, selected), *rows)
        assert (found >= honest.min(axis=0) - 1e-4).all()
        assert (found <= honest.max(axis=0) + 1e-4).all()


def test_distances_are_over_all_tensors(single: Any) -> None:
    updates = single({"a": [0.0], "b": [[0.0, 0.0]]}, {"a": [3.0], "b": [[0.0, 4.0]]})
    np.testing.assert_array_equal(squared_distances(updates.each), [[0, 25], [25, 0]])


THREADED = """
import hashlib
import numpy as np
from odt_sim.aggregators.krum import squared_distances
from odt_sim.strategies.base import Update

rows = np.random.default_rng(0).normal(1, size=(100, 10_000)).astype(np.float32)
each = {i: Update({"v": row}, 1.0, np.zeros(1, np.float32)) for i, row in enumerate(rows)}
print(hashlib.sha256(squared_distances(each).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_bits_do_not_depend_on_threads() -> None:
    """On a single core both numbers are one."""
    found = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", THREADED], env=environment, capture_output=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize(("devices", "hostile", "selected"), [(5, 0.2, 1), (20, 0.2, 14), (3, 0, 1), (30, 0.1, 25)])
def test_minimum_number_of_devices(devices: int, hostile: float, selected: int) -> None:
    Krum(hostile, selected).check(devices)
    message = rf"aggregator krum: expected at least \d+ updates, .*, found {devices}; use more devices per round"
    with pytest.raises(ConfigurationError, match=message):
        Krum(hostile, selected + (devices if devices < 6 else 1)).check(devices)


def test_too_few_devices_are_refused_with_the_minimum() -> None:
    expected = (
        "expected at least 5 updates, since 1 may be hostile (aggregator.hostile is 0.2) and 1 are selected, found 4"
    )
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        Krum().check(4)


@pytest.mark.parametrize("selected", [0, 1.5, True])
def test_selected_out_of_range(selected: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"aggregator\.selected: expected a whole number of at least 1"):
        Krum(selected=selected)
