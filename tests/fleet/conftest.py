"""Fixtures of device classes and fleets."""

from dataclasses import replace

import numpy as np
import pytest

from odt_sim.fleet.calibration import Calibration, CallTime
from odt_sim.fleet.classes import DeviceClass, Population, device_classes
from odt_sim.fleet.habits import Habits

PLAIN = DeviceClass(
    name="plain",
    share=1.0,
    speed=0.5,
    memory_megabytes=100.0,
    battery_watt_hours=10.0,
    charging_watts=5.0,
    train_watts=4.0,
    idle_watts=0.25,
    wifi_share=0.5,
    wifi_down_mbps=80.0,
    wifi_up_mbps=40.0,
    wifi_down_joules_per_mb=1.0,
    wifi_up_joules_per_mb=2.0,
    cellular_down_mbps=8.0,
    cellular_up_mbps=4.0,
    cellular_down_joules_per_mb=3.0,
    cellular_up_joules_per_mb=5.0,
)
"""A class whose costs are easy to compute by hand."""

CALIBRATION = Calibration(
    "f" * 64,
    "a machine",
    {"train": CallTime(0.002, 0.0, 16), "infer": CallTime(0.0005, 0.0001, 16)},
    memory_bytes=20_000_000,
)


def alike(devices: int, **changed: float) -> Population:
    """Return a fleet of one class."""
    return Population((replace(PLAIN, **changed),), np.zeros(devices, np.int16))


@pytest.fixture(scope="session")
def phones() -> Population:
    """2,000 devices of the shipped classes."""
    return Population.assigned(device_classes("phones"), 2000, seed=3)


@pytest.fixture(scope="session")
def habits(phones: Population) -> Habits:
    """The habits of `phones`, in two time zones."""
    return Habits.of(3, phones, {"Europe/Berlin": 1, "America/New_York": 2})
