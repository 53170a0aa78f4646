"""The devices of a run on the clock: what their work costs, when they are available, and their batteries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.classes import Flags
from odt_sim.fleet.conditions import Conditions, data_bytes
from odt_sim.fleet.costs import Cost, Work
from odt_sim.simulation.clock.timetable import Course, Floats, Ids, Trips, part
from odt_sim.simulation.clock.work import LocalWork

COUNTED = 2_000
"""The approximate number of devices that are sampled to count the eligible ones."""


@dataclass(frozen=True, eq=False)
class Planned:
    """The planned work of devices that are selected at the same time.

    Attributes:
        ids: `[devices]`, ascending.
        begins: `[devices]`, the simulated seconds at which each device begins to download.
        work: The planned work.
        wifi: `[devices]`, whether each device is on Wi-Fi.
        cost: The cost of all planned work.
        trips: The durations of the work, and when each device must stop.
    """

    ids: Ids
    begins: Floats
    work: Work
    wifi: Flags
    cost: Cost
    trips: Trips


class Devices:
    """The devices of a run on the clock.

    Attributes:
        conditions: Their classes, costs and availability.
        candidates: The devices for training with enough memory, ascending.
        incapable: The number of devices for training with too little memory.
    """

    def __init__(self, conditions: Conditions, participants: Ids, data: FederatedData) -> None:
        """Find the devices with enough memory.

        Args:
            conditions: The devices' conditions.
            participants: The devices that take part in training, ascending.
            data: The devices' examples.

        Raises:
            ConfigurationError: No device has enough memory.
        """
        self.conditions, self._costs = conditions, conditions.costs
        held = data_bytes(data)[participants]
        self.candidates = participants[conditions.eligible(participants, held)]
        self.incapable = len(participants) - len(self.candidates)
        if not len(self.candidates):
            needed = float(self._costs.memory(held).min()) / 1e6
            raise ConfigurationError(
                f"fleet.profiles: no class has enough memory for this model, which needs {needed:.0f} MB with the "
                "data of the smallest device; use a smaller model or other devices"
            )

    def eligible(self, ids: Ids, time: float, batteries: Batteries) -> Ids:
        """Return the devices among `ids` that are available and have a charge above the floor."""
        ids = ids[self.conditions.availability.available(ids, time)]
        return ids[batteries.usable(ids, time)]

    def count(self, time: float, batteries: Batteries) -> int:
        """Return the number of eligible candidates; for a large fleet, an estimate from evenly spaced devices."""
        looked_at = self.candidates[:: max(1, len(self.candidates) // COUNTED)]
        share = len(self.eligible(looked_at, time, batteries)) / len(looked_at)
        return round(share * len(self.candidates))

    def plan(self, ids: Ids, time: float, waits: Floats, works: Sequence[LocalWork], batteries: Batteries) -> Planned:
        """Return the durations and costs of devices' work, and when each device has to stop.

        Args:
            ids: `[devices]`, ascending.
            time: The simulated seconds at which the devices are selected.
            waits: `[devices]`, the seconds from then on until each device begins.
            works: The work of each device.
            batteries: The batteries of the fleet.
        """
        begins = time + waits
        work, wifi = together(works), self.conditions.habits.wifi(ids, begins)
        cost = self._costs.of(ids, work, wifi)
        charged = batteries.fraction(ids, begins, cost.seconds, cost.joules)
        empty = np.where(charged < 1, waits + charged * cost.seconds, np.inf)
        leaves = np.minimum(self.conditions.availability.until(ids, time) - time, empty)
        trips = Trips(waits, cost.download_seconds, cost.compute_seconds, cost.upload_seconds, leaves)
        return Planned(ids, begins, work, wifi, cost, trips)

    def spent(self, planned: Planned, course: Course) -> tuple[Cost, Work]:
        """Return the actual cost and work of the devices in a round."""
        computed = part(course.computes, planned.trips.compute)
        work = Work(
            {name: calls * computed for name, calls in planned.work.calls.items()},
            np.round(planned.work.bytes_down * course.downloads),
            np.round(planned.work.bytes_up * course.uploads),
            {name: rows * computed for name, rows in planned.work.rows.items()},
        )
        return self._costs.of(planned.ids, work, planned.wifi), work


def together(works: Sequence[LocalWork]) -> Work:
    """Return the work of several devices, with a count of 0 for a signature that a device does not call."""
    signatures = sorted({name for work in works for name in work.calls})

    def column(counts: Sequence[int]) -> Floats:
        return np.array(counts, np.float64)

    return Work(
        {name: column([work.calls.get(name, 0) for work in works]) for name in signatures},
        column([work.bytes_down for work in works]),
        column([work.bytes_up for work in works]),
        {name: column([work.rows.get(name, 0) for work in works]) for name in signatures},
    )
