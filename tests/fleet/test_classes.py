"""Classes of devices, their assignment, and the hash behind every draw."""

from dataclasses import replace

import numpy as np
import pytest

from odt_sim.errors import ConfigurationError
from odt_sim.fleet.classes import Population, device_classes
from odt_sim.fleet.draws import uniform
from tests.fleet.conftest import PLAIN

IDS = np.arange(100_000)


def test_hashed_numbers_are_uniform_and_independent() -> None:
    drawn, other, later = uniform(0, "a", IDS), uniform(0, "b", IDS), uniform(0, "a", IDS, 1)
    counts, _ = np.histogram(drawn, 20, (0, 1))
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(5000)
    for first, second in ((drawn, other), (drawn, later), (drawn[1:], drawn[:-1]), (drawn, uniform(1, "a", IDS))):
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


def test_hashed_number_depends_on_its_own_device_and_count_only() -> None:
    some = np.array([70_000, 3, 12])
    np.testing.assert_array_equal(uniform(5, "a", some, np.array([4, 5, 6]))[1], uniform(5, "a", IDS, 5)[3])
    np.testing.assert_array_equal(uniform(5, "a", some), uniform(5, "a", IDS)[some])


def test_devices_have_classes_by_share_and_seed() -> None:
    classes = device_classes("phones")
    found = Population.assigned(classes, len(IDS), seed=0)
    shares = np.bincount(found.of_device) / len(IDS)
    np.testing.assert_allclose(shares, [each.share for each in classes], atol=0.01)
    smaller = Population.assigned(classes, 50, seed=0)
    np.testing.assert_array_equal(smaller.of_device, found.of_device[:50])
    assert (Population.assigned(classes, 50, seed=1).of_device != smaller.of_device).any()
    assert found.names(np.array([0])) == [classes[found.of_device[0]].name]
    assert found.of("speed", np.array([7]))[0] == classes[found.of_device[7]].speed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_watts": -1.0}, "profile.train_watts: expected a number of at least 0 and at most 500, found -1.0"),
        ({"train_watts": 2500.0}, "profile.train_watts: expected a number of at least 0 and at most 500, found 2500.0"),
        ({"battery_watt_hours": 4000.0, "charging_watts": 500.0}, "profile.battery_watt_hours: "),
        ({"memory_megabytes": 4e9}, "profile.memory_megabytes: "),
        ({"share": 0.0}, "profile.share: expected a number above 0, found 0.0"),
        ({"name": ""}, "profile.name: expected a name"),
        ({"idle_watts": 5.0}, "profile.idle_watts: expected at most train_watts, 4, found 5"),
        (
            {"charging_watts": 1.0},
            "profile.charging_watts: expected at least 2, so that a night of 5 h fills the battery, found 1; "
            "or correct battery_watt_hours, 10, which is mAh",
        ),
    ],
)
def test_class_that_no_device_has_is_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replace(PLAIN, **changed)
    assert str(caught.value).startswith(message)
