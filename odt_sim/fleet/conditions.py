"""The conditions of a run's devices: their classes, costs, availability and batteries, from the settings."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.fleet.availability import Always, Availability, Charging, Daily, Markov
from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.calibration import Calibration, calibrated
from odt_sim.fleet.classes import DeviceClass, Ids, Population
from odt_sim.fleet.costs import Costs
from odt_sim.fleet.habits import HOUR, Habits
from odt_sim.fleet.tables import device_classes
from odt_sim.fleet.trace import Trace
from odt_sim.model.trainable import TrainableModel
from odt_sim.settings import Availability as AvailabilitySettings
from odt_sim.settings import Fleet

Flags = NDArray[np.bool_]

ALIKE = DeviceClass("device")
"""The class of all devices where there are no profiles but an availability, whose curves need time zones only."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """What a fleet's devices are like.

    Attributes:
        population: The class of each device.
        habits: When devices charge and are on Wi-Fi.
        availability: When devices are available.
        batteries: The batteries at the start of a run; None without profiles.
        costs: What work costs; None without profiles.
        settings: What decides all this, as text by dotted name.
    """

    population: Population
    habits: Habits
    availability: Availability
    batteries: Batteries | None = None
    costs: Costs | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def eligible(self, ids: Ids, data_bytes: NDArray[np.int64]) -> Flags:
        """Return `[devices]`: whether the model and `[devices]` bytes of data fit into the memory of each."""
        return np.ones(len(ids), bool) if self.costs is None else self.costs.fits(ids, data_bytes)


def conditions(
    fleet: Fleet, devices: int, seed: int, model: TrainableModel, folder: Path | None = None
) -> Conditions | None:
    """Return the conditions of a run; None if `fleet.profiles` and `fleet.availability` are not set.

    Args:
        fleet: The settings.
        devices: The number of devices.
        seed: The run's seed.
        model: The model, which is measured unless it was before.
        folder: The run's folder, which may hold the calibration of an interrupted run.

    Raises:
        ConfigurationError: A table, a trace, a calibration or a time zone is unusable.
        ModelError: LiteRT cannot run the model.
    """
    profiles, when = fleet.profiles, fleet.availability
    if profiles.table is None and profiles.calibration is not None:
        raise ConfigurationError(
            "fleet.profiles.calibration: expected null without fleet.profiles; set it: fleet.profiles=phones"
        )
    if profiles.table is None and when.kind is None:
        return None
    classes = (ALIKE,) if profiles.table is None else device_classes(profiles.table)
    population = Population.assigned(classes, devices, seed)
    habits = Habits.of(seed, population, when.time_zones)
    settings = {f"fleet.availability.{name}": str(value) for name, value in vars(when).items()}
    availability = available_when(when, habits)
    if profiles.table is None:
        return Conditions(population, habits, availability, settings=settings)
    given = None if profiles.calibration is None else Path(profiles.calibration).expanduser()
    calibration: Calibration = calibrated(model, folder, given)
    settings |= {
        "fleet.profiles.table": f"{profiles.table} {sha256(str(classes).encode()).hexdigest()[:12]}",
        "fleet.profiles.calibration": calibration.digest,
    }
    costs = Costs(population, calibration)
    return Conditions(population, habits, availability, Batteries(habits, when.floor), costs, settings)


def available_when(when: AvailabilitySettings, habits: Habits) -> Availability:
    """Return the availability of a fleet's devices.

    Raises:
        ConfigurationError: There is no such kind, or the trace is unusable.
    """
    if when.kind is None or when.kind == "always":
        return Always()
    if when.kind == "daily":
        return Daily(habits, when.peak, when.low)
    if when.kind == "charging":
        return Charging(habits)
    if when.kind == "markov":
        return Markov(habits.seed, HOUR * when.on_hours, HOUR * when.off_hours)
    if when.kind.endswith(".csv"):
        return Trace.read(Path(when.kind).expanduser(), len(habits.population))
    raise ConfigurationError(
        f"fleet.availability.kind: expected always, daily, charging, markov, a .csv file or null, found {when.kind!r}"
    )


def data_bytes(data: FederatedData) -> NDArray[np.int64]:
    """Return `[devices]`: the bytes of each device's examples."""
    examples = data.offsets[:, 3] - data.offsets[:, 0]
    rows = max(len(data.x), 1)
    return np.asarray(examples * ((data.x.nbytes + data.y.nbytes) // rows))
