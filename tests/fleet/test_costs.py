"""Costs of work: known answers, and the energy of all work as the sum over its calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from odt_sim.errors import ConfigurationError
from odt_sim.fleet.classes import Population, device_classes
from odt_sim.fleet.costs import Cost, Costs, Work
from tests.fleet.conftest import CALIBRATION, alike

COSTS = Costs(Population.assigned(device_classes("phones"), 50, seed=0), CALIBRATION)
TWO = np.array([0, 1])


def test_cost_of_work_by_hand() -> None:
    work = Work(
        {"train": np.array([100, 0]), "infer": np.array([10, 0])},
        bytes_down=np.array([1_000_000, 1_000_000]),
        bytes_up=np.array([2_000_000, 0]),
        rows={"infer": np.array([150, 0])},
    )
    cost = Costs(alike(2), CALIBRATION).of(TWO, work, np.array([False, True]))
    compute = (100 * 0.002 + 10 * 0.0005 + 150 * 0.0001) / 0.5
    assert_allclose(cost.compute_seconds, [compute, 0])
    assert_allclose(cost.download_seconds, [1.0, 0.1])  # 8 Mbit at 8 and at 80 Mbps
    assert_allclose(cost.upload_seconds, [4.0, 0.0])
    assert_allclose(cost.compute_joules, [4 * compute, 0])
    assert_allclose(cost.idle_joules, [0.25 * 5.0, 0.25 * 0.1])
    assert_allclose(cost.radio_joules, [1 * 3.0 + 2 * 5.0, 1.0])
    assert_allclose(cost.cellular_bytes, [3_000_000, 0])
    assert_allclose(cost.wifi_bytes, [0, 1_000_000])
    assert_allclose(cost.joules, [4 * compute + 1.25 + 13, 0.025 + 1])
    assert_allclose(cost.seconds, [compute + 5, 0.1])


counts = st.integers(0, 10_000)
pieces = st.lists(st.tuples(counts, counts, counts, counts, counts), min_size=1, max_size=6)


def work_of(train: int, infer: int, rows: int, down: int, up: int) -> Work:
    return Work(
        {"train": np.array([train]), "infer": np.array([infer])},
        np.array([down]),
        np.array([up]),
        {"infer": np.array([rows])},
    )


@given(pieces=pieces, device=st.integers(0, 49), wifi=st.booleans())
def test_energy_time_and_bytes_of_work_are_the_sum_over_its_parts(
    pieces: list[tuple[int, int, int, int, int]], device: int, wifi: bool
) -> None:
    ids, network = np.array([device]), np.array([wifi])
    total = Cost(*np.zeros((8, 1)))
    for piece in pieces:
        total += COSTS.of(ids, work_of(*piece), network)
    whole = COSTS.of(ids, work_of(*map(sum, zip(*pieces, strict=True))), network)
    for name in ("joules", "seconds", "wifi_bytes", "cellular_bytes"):
        assert_allclose(getattr(whole, name), getattr(total, name), rtol=1e-12)


@given(calls=st.lists(st.sampled_from(["train", "infer"]), max_size=30), device=st.integers(0, 49))
def test_energy_of_computing_is_the_sum_over_single_calls(calls: list[str], device: int) -> None:
    ids, none, network = np.array([device]), np.zeros(1), np.array([True])
    single = [COSTS.of(ids, Work({name: np.ones(1)}, none, none), network).compute_joules for name in calls]
    whole = Work({name: np.array([calls.count(name)]) for name in ("train", "infer")}, none, none)
    assert_allclose(COSTS.of(ids, whole, network).compute_joules, sum(single, np.zeros(1)), rtol=1e-12)


def test_work_that_stops_early_costs_its_part() -> None:
    work = work_of(100, 10, 160, 1000, 500)
    stopped = work.part(np.array([0.25]), np.array([False]))
    whole, part = (COSTS.of(np.array([4]), each, np.array([True])) for each in (work, stopped))
    assert_allclose(part.compute_seconds, 0.25 * whole.compute_seconds)
    assert_allclose(part.download_seconds, whole.download_seconds)
    assert part.upload_seconds == 0
    sent = work.part(np.array([0.25]), np.array([True]))
    assert_allclose(sent.bytes_up, work.bytes_up)


def test_model_and_data_have_to_fit_into_the_memory() -> None:
    costs = Costs(alike(2), CALIBRATION)  # 100 MB, of which an interpreter uses 20
    assert_allclose(costs.memory(np.array([5.0])), [20_000_005])


def test_signature_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected one of the signatures infer, train, found 'embed'"):
        COSTS.of(np.array([0]), Work({"embed": np.ones(1)}, np.zeros(1), np.zeros(1)), np.array([True]))
