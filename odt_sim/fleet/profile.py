"""Device profiles: a phone's measurements as JSON files that a fleet's configuration can use."""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from odt_sim._support.files import write_file
from odt_sim.declarations import Settings, setting
from odt_sim.errors import ConfigurationError

FORMAT_VERSION = 1
TIMED = ("train", "infer")
"""The timed signatures."""


@dataclass(frozen=True)
class Timing(Settings, group="timing"):
    """The time of one signature's calls, without warm-up calls."""

    batch: int = setting(MISSING, "rows of a call", least=1)
    median: float = setting(MISSING, "milliseconds of a call: half of the calls take less", above=0)
    lower_quartile: float = setting(MISSING, "milliseconds of a call: a quarter of the calls take less", above=0)
    upper_quartile: float = setting(MISSING, "milliseconds of a call: three quarters of the calls take less", above=0)
    calls: int = setting(MISSING, "measured calls", least=1)


class NoNameError(ConfigurationError):
    """A device's name contains no characters for a file name."""


@dataclass(frozen=True)
class DeviceProfile(Settings, group="profile"):
    """The speed and the resources of one device, measured with one model."""

    name: str = setting(MISSING, "the name that the user gave the device")
    model: str = setting(MISSING, "the name of the model that was measured")
    fingerprint: str = setting(MISSING, "SHA-256 of the model's file, in hexadecimal")
    timings: Mapping[str, Timing] = setting(MISSING, "the timing of train and of infer, by signature")
    load_milliseconds: float = setting(MISSING, "milliseconds to compile the file", least=0)
    relative_speed: float | None = setting(
        None,
        "training steps of the device in the time of one step in Python on the server's machine; null if not compared",
        above=0,
    )
    memory_megabytes: float | None = setting(
        None, "memory of the page in 10^6 bytes after the measurement; null if the browser does not report it", above=0
    )
    device_memory_gigabytes: float | None = setting(
        None, "the device's memory, as coarsely as the browser reports it; null if it does not", above=0
    )
    cores: int | None = setting(None, "logical processors; null if the browser does not report them", least=1)
    threads: int = setting(1, "threads that LiteRT.js used", least=1)
    battery: float | None = setting(
        None, "charge from 0 to 1 at the end; null if the browser does not report it", least=0, most=1
    )
    charging: bool | None = setting(None, "whether the battery was charging; null if the browser does not report it")
    user_agent: str = setting("", "the browser's name for itself")
    measured: str = setting("", "the time of the upload, ISO 8601 in UTC")

    def __post_init__(self) -> None:
        """Check types and ranges, and that both signatures were timed.

        Raises:
            ConfigurationError: A value does not fit its declaration.
        """
        super().__post_init__()
        if not (set(TIMED) == set(self.timings) and all(isinstance(each, Timing) for each in self.timings.values())):
            found = ", ".join(map(str, self.timings)) or "none"
            raise ConfigurationError(f"profile.timings: expected one each for {' and '.join(TIMED)}, found {found}")
        if not slug(self.name):
            raise NoNameError(
                f"profile.name: expected a name with a letter or a digit, found {self.name!r}; give the device another name"
            )

    def to_json(self) -> str:
        """Return the profile as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> "DeviceProfile":
        """Read a profile from JSON.

        Args:
            text: The JSON.
            where: The file's name, for errors.

        Raises:
            ConfigurationError: The text is not a profile of this version.
        """
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("not a JSON object")
            version = values.pop("format_version")
            unknown = sorted(set(values) - {each.name for each in fields(cls)})
            if version != FORMAT_VERSION or unknown:
                raise ValueError(f"unknown key {unknown[0]!r}" if unknown else f"format version {version!r}")
            timings = {name: Timing(**timing) for name, timing in values.pop("timings").items()}
            return cls(timings=timings, **values)
        except NoNameError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigurationError) as error:
            reason = f"no key {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigurationError(
                f"{where}: not a device profile of version {FORMAT_VERSION} ({reason}); measure the device again"
            ) from error

    @classmethod
    def read(cls, path: Path) -> "DeviceProfile":
        """Read a profile from a file.

        Raises:
            ConfigurationError: The file cannot be read or is not a profile.
        """
        try:
            return cls.from_json(path.read_bytes(), str(path))
        except OSError as error:
            raise ConfigurationError(
                f"{path}: cannot read the device profile ({error.strerror}); check the path"
            ) from error

    def write(self, folder: Path) -> Path:
        """Write the profile as `NAME.json`, or `NAME-2.json` if that exists, and return its path.

        Raises:
            FileError: The folder cannot be written.
        """
        name, number = slug(self.name), 1
        path = folder / f"{name}.json"
        while path.exists():
            number += 1
            path = folder / f"{name}-{number}.json"
        write_file(path, self.to_json().encode())
        return path


def slug(name: str) -> str:
    """Return a name as part of a file name: at most 40 lower-case letters of any script, digits and hyphens."""
    return re.sub(r"[\W_]+", "-", unicodedata.normalize("NFKC", name).lower()).strip("-")[:40].strip("-")
