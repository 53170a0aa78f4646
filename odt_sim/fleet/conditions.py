"""The conditions of a run's devices: their classes, costs, availability and batteries, from the settings."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.fleet.availability import Always, Availability, Charging, Daily, Markov, Trace
from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.calibration import calibrated
from odt_sim.fleet.classes import MEGABYTE, Flags, Ids, Population, device_classes
from odt_sim.fleet.costs import Costs
from odt_sim.fleet.habits import HOUR, Habits
from odt_sim.model.trainable import TrainableModel
from odt_sim.settings import Availability as AvailabilitySettings
from odt_sim.settings import Fleet, Profiles


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions of a fleet's devices.

    Attributes:
        population: The class of each device.
        habits: The times at which devices charge and are on Wi-Fi.
        availability: The times at which devices are available.
        batteries: The batteries at the start of a run.
        costs: The costs of work.
        settings: The settings behind these, as text by dotted name.
    """

    population: Population
    habits: Habits
    availability: Availability
    batteries: Batteries
    costs: Costs
    settings: dict[str, str]

    def eligible(self, ids: Ids, data_bytes: NDArray[np.int64]) -> Flags:
        """Return whether the model and `[devices]` bytes of data fit into each device's memory, `[devices]`."""
        return np.asarray(self.costs.memory(data_bytes) <= self.population.of("memory_megabytes", ids) * MEGABYTE)


def conditions(
    fleet: Fleet, devices: int, seed: int, model: TrainableModel, folder: Path | None = None
) -> Conditions | None:
    """Return the conditions of a run; None if `fleet.profiles` is not set.

    Args:
        fleet: The settings.
        devices: The number of devices.
        seed: The run's seed.
        model: The model, which is measured unless a calibration exists.
        folder: The run's folder, which may contain the calibration of an interrupted run.

    Raises:
        ConfigurationError: A table, a trace, a calibration or a time zone is unusable.
        ModelError: LiteRT cannot run the model.
    """
    profiles, when = fleet.profiles, fleet.availability
    if profiles.table is None:
        for group, default in ((profiles, Profiles()), (when, AvailabilitySettings())):
            for name, value in vars(group).items():
                if value != getattr(default, name):
                    raise ConfigurationError(
                        f"{group.group}.{name}: needs fleet.profiles, found {value!r}; set it: fleet.profiles=phones"
                    )
        return None
    classes = device_classes(profiles.table)
    population = Population.assigned(classes, devices, seed)
    habits = Habits.of(seed, population, when.time_zones)
    availability = available_when(when, habits)
    given = None if profiles.calibration is None else Path(profiles.calibration).expanduser()
    calibration = calibrated(model, folder, given)
    settings = {
        **{
            f"fleet.availability.{name}": str(value)
            for name, value in vars(when).items()
            if name != "repeat_hours" or value is not None
        },
        **({"fleet.availability.trace": availability.digest} if isinstance(availability, Trace) else {}),
        "fleet.profiles.table": f"{profiles.table} {sha256(str(classes).encode()).hexdigest()[:12]}",
        "fleet.profiles.calibration": calibration.digest,
    }
    costs = Costs(population, calibration)
    return Conditions(population, habits, availability, Batteries(habits, when.floor), costs, settings)


def available_when(when: AvailabilitySettings, habits: Habits) -> Availability:
    """Return the availability of a fleet's devices.

    Raises:
        ConfigurationError: The kind is unknown, or the trace is unusable.
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
        period = None if when.repeat_hours is None else HOUR * when.repeat_hours
        return Trace.read(Path(when.kind).expanduser(), len(habits.population), period)
    raise ConfigurationError(
        f"fleet.availability.kind: expected always, daily, charging, markov, a .csv file or null, found {when.kind!r}"
    )


def data_bytes(data: FederatedData) -> NDArray[np.int64]:
    """Return the bytes of each device's examples, `[devices]`."""
    examples = data.offsets[:, 3] - data.offsets[:, 0]
    rows = max(len(data.x), 1)
    return np.asarray(examples * ((data.x.nbytes + data.y.nbytes) // rows))
