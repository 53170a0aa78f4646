"""Device classes: their speed, memory, battery and networks, their tables, and the class of each device of a fleet.

A table is the shipped one, your own as CSV or YAML, or phones' measurements as JSON.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]
from numpy.typing import NDArray

from odt_sim.declarations import Settings, setting
from odt_sim.errors import ConfigurationError
from odt_sim.fleet.draws import Ids as Ids
from odt_sim.fleet.draws import uniform
from odt_sim.fleet.profile import DeviceProfile

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


SHIPPED = "phones"
"""The name of the shipped table, `phones.yaml` in this package."""

COLUMNS = ("name", *NUMBERS)


def device_classes(table: str) -> tuple[DeviceClass, ...]:
    """Return the classes of a table.

    Args:
        table: `phones`, a `.csv` or `.yaml` file, or a `.json` file of a phone's measurements or a folder of such
            files.

    Raises:
        ConfigurationError: The table does not exist or lacks a column, or a value does not fit.
    """
    if table == SHIPPED:
        text = files("odt_sim.fleet").joinpath(f"{SHIPPED}.yaml").read_text()
        return _checked(_of_yaml(text, f"{SHIPPED}.yaml"), f"{SHIPPED}.yaml")
    path = Path(table).expanduser()
    where = str(path)
    try:
        if path.is_dir():
            classes = [_measured(file) for file in sorted(path.glob("*.json"))]
        elif path.suffix == ".csv":
            classes = list(_of_csv(path.read_text(encoding="utf-8-sig"), where))
        elif path.suffix in (".yaml", ".yml"):
            classes = _of_yaml(path.read_text(), where)
        elif path.suffix == ".json":
            classes = [_measured(path)]
        else:
            raise ConfigurationError(
                f"fleet.profiles.table: expected {SHIPPED}, a .csv, .yaml or .json file, or a folder, found {table!r}"
            )
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(
            f"{where}: cannot read the device profiles ({reason}); check fleet.profiles"
        ) from error
    return _checked(classes, where)


def _of_csv(text: str, where: str) -> Iterator[DeviceClass]:
    reader = csv.DictReader(text.splitlines())
    if not reader.fieldnames:
        raise ConfigurationError(f"{where}: is empty; expected a line with the columns {', '.join(COLUMNS)}")
    _check_columns(reader.fieldnames, where)
    for number, row in enumerate(reader, 2):
        yield _class({key: (value or "").strip() for key, value in row.items() if key}, f"{where}, line {number}")


def _of_yaml(text: str, where: str) -> list[DeviceClass]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where}: not YAML ({str(error).splitlines()[0]})") from error
    table = content.get("classes") if isinstance(content, Mapping) else None
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{where}: expected a mapping 'classes' of names to classes")
    classes = []
    for name, row in table.items():
        if not isinstance(row, Mapping):
            raise ConfigurationError(f"{where}, class {name}: expected a value for each column, found {row!r}")
        _check_columns(["name", *row], f"{where}, class {name}")
        numbers = {key: value["value"] if isinstance(value, Mapping) else value for key, value in row.items()}
        classes.append(_class({"name": name, **numbers}, f"{where}, class {name}"))
    return classes


def _check_columns(columns: Any, where: str) -> None:
    missing = [name for name in COLUMNS if name not in columns]
    unknown = [str(name) for name in columns if name not in COLUMNS]
    if missing or unknown:
        faults = [f"lacks the column {name!r}" for name in missing[:1]]
        faults += [f"has an unknown column {name!r}" for name in unknown[:1]]
        raise ConfigurationError(f"{where}: {' and '.join(faults)}; expected {', '.join(COLUMNS)}")


def _class(row: Mapping[str, Any], where: str) -> DeviceClass:
    try:
        numbers = {name: float(row[name]) for name in NUMBERS}
    except (TypeError, ValueError):
        name = next(name for name in NUMBERS if not _is_number(row[name]))
        raise ConfigurationError(f"{where}: expected a number for {name}, found {row[name]!r}") from None
    try:
        return DeviceClass(str(row["name"]), **numbers)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {str(error).removeprefix('profile.')}") from error


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _measured(path: Path) -> DeviceClass:
    """Return the class of a phone that `odt-sim phone` measured.

    Values that were not measured, such as the battery, come from the shipped class with the nearest speed.
    """
    profile = DeviceProfile.read(path)
    speed, memory = profile.relative_speed, profile.device_memory_gigabytes
    if speed is None:
        raise ConfigurationError(
            f"{path}: has no relative_speed, so its speed is unknown; measure the phone again with odt-sim phone"
        )
    like = min(device_classes(SHIPPED), key=lambda each: abs(math.log(each.speed / speed)))
    measured = replace(like, name=profile.name, speed=speed, share=1.0)
    return measured if memory is None else replace(measured, memory_megabytes=1000 * memory * USABLE_MEMORY)


USABLE_MEMORY = 0.25
"""The fraction of a phone's memory that a background app may use, estimated as in the shipped table."""


def _checked(classes: list[DeviceClass], where: str) -> tuple[DeviceClass, ...]:
    names = [each.name for each in classes]
    if not classes:
        raise ConfigurationError(f"{where}: has no device profile; add one, or check fleet.profiles")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{where}: has two classes named {twice!r}; rename one")
    return tuple(classes)
