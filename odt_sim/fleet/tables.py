"""Tables of device classes: the shipped table, your own as CSV or YAML, and phones' measurements as JSON."""

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from odt_sim.errors import ConfigurationError
from odt_sim.fleet.classes import NUMBERS, DeviceClass
from odt_sim.fleet.profile import DeviceProfile

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
            found = [_measured(file) for file in sorted(path.glob("*.json"))]
        elif path.suffix == ".csv":
            found = list(_of_csv(path.read_text(encoding="utf-8-sig"), where))
        elif path.suffix in (".yaml", ".yml"):
            found = _of_yaml(path.read_text(), where)
        elif path.suffix == ".json":
            found = [_measured(path)]
        else:
            raise ConfigurationError(
                f"fleet.profiles.table: expected {SHIPPED}, a .csv, .yaml or .json file, or a folder, found {table!r}"
            )
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(
            f"{where}: cannot read the device profiles ({reason}); check fleet.profiles"
        ) from error
    return _checked(found, where)


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
    found = []
    for name, row in table.items():
        if not isinstance(row, Mapping):
            raise ConfigurationError(f"{where}, class {name}: expected a value for each column, found {row!r}")
        _check_columns(["name", *row], f"{where}, class {name}")
        numbers = {key: value["value"] if isinstance(value, Mapping) else value for key, value in row.items()}
        found.append(_class({"name": name, **numbers}, f"{where}, class {name}"))
    return found


def _check_columns(given: Any, where: str) -> None:
    missing = [name for name in COLUMNS if name not in given]
    unknown = [str(name) for name in given if name not in COLUMNS]
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


def _checked(found: list[DeviceClass], where: str) -> tuple[DeviceClass, ...]:
    names = [each.name for each in found]
    if not found:
        raise ConfigurationError(f"{where}: has no device profile; add one, or check fleet.profiles")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{where}: has two classes named {twice!r}; rename one")
    return tuple(found)
