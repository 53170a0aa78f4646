"""The costs of work for devices: seconds, joules, and bytes by network.

| cost | formula |
|---|---|
| seconds of a signature | `(calls * per_call + rows * per_row) / speed` |
| joules of computing | `train_watts * seconds` |
| seconds of a transfer | `8 * bytes / (10^6 * mbps)` of the network in use |
| joules of the radio | `joules_per_mb * bytes / 10^6`, in addition to `idle_watts * seconds` of the transfer |

All are linear in the work, so the cost of a sum is the sum of the costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from odt_sim.fleet.calibration import Calibration
from odt_sim.fleet.classes import MEGABIT, MEGABYTE, Flags, Floats, Ids, Population


@dataclass(frozen=True, eq=False)
class Work:
    """The work of devices.

    Attributes:
        calls: The number of calls by signature, `[devices]` each.
        rows: The number of examples in all calls, without padding, by signature, `[devices]` each. It matters only for
            files that accept any number of examples; calls of an absent signature count as full batches.
        bytes_down: `[devices]`, the bytes that each device receives.
        bytes_up: `[devices]`, the bytes that each device sends.
    """

    calls: Mapping[str, Floats | Ids]
    bytes_down: Floats | Ids
    bytes_up: Floats | Ids
    rows: Mapping[str, Floats | Ids] = field(default_factory=dict)

    def part(self, fraction: Floats, sends: Flags) -> "Work":
        """Return the work of devices that stop early.

        Args:
            fraction: `[devices]` in 0..1, the part of the calls that each device makes.
            sends: `[devices]`, whether the device sends its update nevertheless.
        """
        return Work(
            {name: calls * fraction for name, calls in self.calls.items()},
            self.bytes_down,
            np.where(sends, self.bytes_up, 0),
            {name: rows * fraction for name, rows in self.rows.items()},
        )


@dataclass(frozen=True, eq=False)
class Cost:
    """The cost of work for each device; all arrays are `[devices]` float64.

    Attributes:
        download_seconds: Seconds to receive.
        compute_seconds: Seconds to train and infer.
        upload_seconds: Seconds to send.
        compute_joules: Energy to train and infer.
        idle_joules: Energy of the rest of the device during transfers.
        radio_joules: Energy of the radio.
        wifi_bytes: Bytes received and sent on Wi-Fi.
        cellular_bytes: Bytes received and sent on the cellular network.
    """

    download_seconds: Floats
    compute_seconds: Floats
    upload_seconds: Floats
    compute_joules: Floats
    idle_joules: Floats
    radio_joules: Floats
    wifi_bytes: Floats
    cellular_bytes: Floats

    @property
    def seconds(self) -> Floats:
        """Seconds from the beginning of the download to the end of the upload."""
        return self.download_seconds + self.compute_seconds + self.upload_seconds

    @property
    def joules(self) -> Floats:
        """The total energy."""
        return self.compute_joules + self.idle_joules + self.radio_joules

    def __add__(self, other: "Cost") -> "Cost":
        """Return the sum for the same devices."""
        return Cost(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Cost)))

    def __getitem__(self, chosen: Ids | Flags | slice) -> "Cost":
        """Return the cost of some of the devices."""
        return Cost(*(getattr(self, each.name)[chosen] for each in fields(Cost)))


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of work for the devices of a fleet.

    Attributes:
        population: The devices' classes.
        calibration: The time of the model's calls on the measured machine, and its memory.
    """

    population: Population
    calibration: Calibration

    def of(self, ids: Ids, work: Work, wifi: Flags) -> Cost:
        """Return the cost of work.

        Args:
            ids: The devices, `[devices]`.
            work: The work of these devices.
            wifi: `[devices]`, whether each device is on Wi-Fi.

        Raises:
            ConfigurationError: A signature was not measured.
        """
        column = self.population.of
        compute = sum(
            (self.calibration.seconds(name, calls, work.rows.get(name)) for name, calls in work.calls.items()),
            np.zeros(len(ids)),
        ) / column("speed", ids)
        down, up = (np.asarray(each, np.float64) for each in (work.bytes_down, work.bytes_up))

        def network(name: str) -> Floats:
            return np.where(wifi, column(f"wifi_{name}", ids), column(f"cellular_{name}", ids))

        download = 8 * down / (MEGABIT * network("down_mbps"))
        upload = 8 * up / (MEGABIT * network("up_mbps"))
        return Cost(
            download_seconds=download,
            compute_seconds=compute,
            upload_seconds=upload,
            compute_joules=column("train_watts", ids) * compute,
            idle_joules=column("idle_watts", ids) * (download + upload),
            radio_joules=(down * network("down_joules_per_mb") + up * network("up_joules_per_mb")) / MEGABYTE,
            wifi_bytes=np.where(wifi, down + up, 0.0),
            cellular_bytes=np.where(wifi, 0.0, down + up),
        )

    def memory(self, data_bytes: Floats | Ids) -> Floats:
        """Return the peak memory in bytes of devices that hold `[devices]` bytes of data."""
        return np.asarray(self.calibration.memory_bytes + data_bytes, np.float64)
