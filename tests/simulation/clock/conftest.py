"""Three classes of devices and a calibration in round numbers, so that times can be computed by hand."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.fleet.calibration import Calibration, CallTime
from odt_sim.fleet.classes import COLUMNS

CLASSES = {"fast": 2.0, "middle": 1.0, "slow": 0.25}
"""The speed of each class."""

COMMON = {
    "share": 1,
    "memory_megabytes": 100,
    "battery_watt_hours": 10,
    "charging_watts": 10,
    "train_watts": 3,
    "idle_watts": 0.5,
    "wifi_share": 1,
    **dict.fromkeys(("wifi_down_mbps", "cellular_down_mbps"), 0.008),  # 1,000 bytes a second
    **dict.fromkeys(("wifi_up_mbps", "cellular_up_mbps"), 0.004),
    **dict.fromkeys(("wifi_down_joules_per_mb", "cellular_down_joules_per_mb"), 100),
    **dict.fromkeys(("wifi_up_joules_per_mb", "cellular_up_joules_per_mb"), 200),
}


@pytest.fixture(scope="session")
def on_clock(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fleet]:
    """Return a function that returns a fleet with device profiles, for a model whose calls take a second."""
    folder = tmp_path_factory.mktemp("profiles")

    def table_of(speeds: Mapping[str, float]) -> Path:
        rows = [
            [name, *({**COMMON, "speed": speed}[column] for column in COLUMNS[1:])] for name, speed in speeds.items()
        ]
        table = folder / f"{len(speeds)}.csv"
        table.write_text("\n".join(",".join(map(str, row)) for row in [COLUMNS, *rows]) + "\n")
        return table

    def fleet(
        model: TrainableModel,
        schedule: Any = "synchronous",
        availability: Any = "always",
        speeds: Mapping[str, float] = CLASSES,
        **settings: Any,
    ) -> Fleet:
        times = dict.fromkeys(model.signatures, CallTime(1.0, 0.0, model.batch_size))
        path = folder / f"{model.fingerprint[:16]}.json"
        path.write_text(Calibration(model.fingerprint, "by hand", times, 10**7).to_json())
        profiles = {"table": str(table_of(speeds)), "calibration": str(path)}
        return Fleet(profiles=profiles, availability=availability, schedule=schedule, **settings)  # type: ignore[arg-type]

    return fleet
