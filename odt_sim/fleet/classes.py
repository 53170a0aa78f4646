"""Device classes: their speed, memory, battery and networks, and the class of each device of a fleet."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odt_sim.declarations import Settings, setting
from odt_sim.errors import ConfigurationError
from odt_sim.fleet.draws import Ids as Ids
from odt_sim.fleet.draws import uniform

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

MEGABIT, MEGABYTE = 1e6, 1e6
JOULES_PER_WATT_HOUR = 3600.0
SHORTEST_NIGHT = 5.0
"""The minimum hours for which a device charges in a night."""
MOST_WATTS, MOST_WATT_HOURS, MOST_MEGABYTES = 500, 1000, 10**6
"""More than laptops have, so that numbers in milliwatts, mAh or bytes are refused."""


@dataclass(frozen=True)
class DeviceClass(Settings, group="profile"):
    """A class of devices, such as phones of the lower price range."""

    name: str = setting(MISSING, "name of the class")
    share: float = setting(MISSING, "share of the population; the shares of a table are divided by their sum", above=0)
    speed: float = setting(
        MISSING,
        "training steps of the device in the time of one step on a core of the machine that measures the file",
        above=0,
    )
    memory_megabytes: float = setting(
        MISSING, "memory that training may use, in 10^6 bytes", above=0, most=MOST_MEGABYTES
    )
    battery_watt_hours: float = setting(MISSING, "capacity of the battery", above=0, most=MOST_WATT_HOURS)
    charging_watts: float = setting(
        MISSING, "power into the battery while the device charges", above=0, most=MOST_WATTS
    )
    train_watts: float = setting(MISSING, "power of the whole device while it trains", least=0, most=MOST_WATTS)
    idle_watts: float = setting(MISSING, "power of the whole device while it does nothing", least=0, most=MOST_WATTS)
    wifi_share: float = setting(MISSING, "share of the time on Wi-Fi while the device does not charge", least=0, most=1)
    wifi_down_mbps: float = setting(MISSING, "download on Wi-Fi, in 10^6 bits per second", above=0)
    wifi_up_mbps: float = setting(MISSING, "upload on Wi-Fi, in 10^6 bits per second", above=0)
    wifi_down_joules_per_mb: float = setting(MISSING, "energy to receive 10^6 bytes on Wi-Fi", least=0)
    wifi_up_joules_per_mb: float = setting(MISSING, "energy to send 10^6 bytes on Wi-Fi", least=0)
    cellular_down_mbps: float = setting(MISSING, "download on the cellular network, in 10^6 bits per second", above=0)
    cellular_up_mbps: float = setting(MISSING, "upload on the cellular network, in 10^6 bits per second", above=0)
    cellular_down_joules_per_mb: float = setting(
        MISSING, "energy to receive 10^6 bytes on the cellular network", least=0
    )
    cellular_up_joules_per_mb: float = setting(MISSING, "energy to send 10^6 bytes on the cellular network", least=0)

    def __post_init__(self) -> None:
        """Check types and ranges, that a night fills the battery, and that idle power is not above training power."""
        super().__post_init__()
        if not self.name:
            raise ConfigurationError("profile.name: expected a name, found empty text")
        if self.charging_watts * SHORTEST_NIGHT < self.battery_watt_hours:
            raise ConfigurationError(
                f"profile.charging_watts: expected at least {self.battery_watt_hours / SHORTEST_NIGHT:g}, so that a night of "
                f"{SHORTEST_NIGHT:g} h fills the battery, found {self.charging_watts:g}; or correct battery_watt_hours, "
                f"{self.battery_watt_hours:g}, which is mAh * volts / 1000"
            )
        if self.idle_watts > self.train_watts:
            raise ConfigurationError(
                f"profile.idle_watts: expected at most train_watts, {self.train_watts:g}, found {self.idle_watts:g}"
            )


NUMBERS = tuple(field.name for field in fields(DeviceClass) if field.name != "name")
"""The columns of a table of classes, without the name."""


@dataclass(frozen=True, eq=False)
class Population:
    """The classes of a fleet, and the class of each device.

    Attributes:
        classes: The classes, in the order of their table.
        of_device: `[devices]` int16, the index of each device's class.
    """

    classes: tuple[DeviceClass, ...]
    of_device: NDArray[np.int16]

    @classmethod
    def assigned(cls, classes: Sequence[DeviceClass], devices: int, seed: int) -> "Population":
        """Draw the class of each device by the classes' shares, depending only on the seed and the device.

        Args:
            classes: At least one class, with different names.
            devices: The number of devices.
            seed: The run's seed.
        """
        shares = np.cumsum([each.share for each in classes])
        drawn = uniform(seed, "class", np.arange(devices)) * shares[-1]
        return cls(tuple(classes), np.searchsorted(shares[:-1], drawn, side="right").astype(np.int16))

    def __len__(self) -> int:
        """Return the number of devices."""
        return len(self.of_device)

    def __getitem__(self, name: str) -> Floats:
        """Return a column of the classes' numbers by its name, `[classes]`."""
        return self._columns[name]

    def of(self, name: str, ids: Ids) -> Floats:
        """Return a number of each device's class, by the name of its column, `[ids]`."""
        return self._columns[name][self.of_device[ids]]

    def names(self, ids: Ids) -> list[str]:
        """Return the name of each device's class."""
        return [self.classes[number].name for number in self.of_device[ids].tolist()]

    @cached_property
    def _columns(self) -> dict[str, Floats]:
        return {name: np.array([getattr(each, name) for each in self.classes], np.float64) for name in NUMBERS}
