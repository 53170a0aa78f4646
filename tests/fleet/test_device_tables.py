"""Tables of device classes: the shipped table, CSV, YAML, measured profiles, and unusable files."""

import csv
import re
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from odt_sim.errors import ConfigurationError
from odt_sim.fleet.classes import COLUMNS, NUMBERS, DeviceClass, device_classes
from odt_sim.fleet.profile import DeviceProfile, Timing
from tests.fleet.conftest import PLAIN

PROFILE = DeviceProfile(
    "Pixel 8",
    "digits_cnn",
    "f" * 64,
    {"train": Timing(16, 2.0, 1.5, 2.5, 100), "infer": Timing(16, 1.0, 0.5, 1.5, 100)},
    12.5,
    relative_speed=0.5,
    device_memory_gigabytes=8,
)


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_every_shipped_number_has_a_source() -> None:
    text = files("odt_sim.fleet").joinpath("phones.yaml").read_text()
    sources = set(re.findall(r"^# - (\w+):", text, re.M))
    for name, row in yaml.safe_load(text)["classes"].items():
        assert set(row) == set(NUMBERS), name
        for column, entry in row.items():
            words = set(re.findall(r"\w+", entry["source"]))
            assert words & sources, (name, column)


def test_shipped_energies_follow_from_the_power_of_the_cited_paper() -> None:
    slopes = {"cellular_down": 51.97, "cellular_up": 438.39, "wifi_down": 137.01, "wifi_up": 283.17}
    for each in device_classes("phones"):
        for name, slope in slopes.items():
            base = 132.86 if name.startswith("wifi") else 1288.04
            joules = 8 * (slope + base / getattr(each, f"{name}_mbps")) / 1000
            assert getattr(each, f"{name}_joules_per_mb") == pytest.approx(joules, abs=0.006)


def test_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [PLAIN, replace(PLAIN, name="fast", speed=2.0)]
    path = written(tmp_path / "own.csv", [asdict(each) for each in rows])
    assert device_classes(str(path)) == tuple(rows)
    plain = {key: value for key, value in asdict(PLAIN).items() if key != "name"}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"classes": {"plain": plain}}))
    assert device_classes(str(tmp_path / "own.yaml")) == (PLAIN,)


def test_measured_phone_has_its_speed_and_memory_and_the_rest_of_the_nearest_class(tmp_path: Path) -> None:
    PROFILE.write(tmp_path)
    replace(PROFILE, name="old", relative_speed=0.2, device_memory_gigabytes=None).write(tmp_path)
    low, middle = (next(each for each in device_classes("phones") if each.name == name) for name in ("low", "middle"))
    old, pixel = device_classes(str(tmp_path))
    assert pixel == replace(middle, name="Pixel 8", share=1.0, speed=0.5, memory_megabytes=2000.0)
    assert old == replace(low, name="old", share=1.0, speed=0.2)
    assert device_classes(str(tmp_path / "old.json")) == (old,)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{key: value for key, value in asdict(PLAIN).items() if key != "idle_watts"}], "lacks the column 'idle_watts'"),
        ([{**asdict(PLAIN), "colour": "red"}], "has an unknown column 'colour'; expected name, share, "),
        (
            [{key.replace("share", "shares"): value for key, value in asdict(PLAIN).items()}],
            "lacks the column 'share' and has an unknown column 'shares'; expected name, share, ",
        ),
        ([{**asdict(PLAIN), "speed": "fast"}], "line 2: expected a number for speed, found 'fast'"),
        ([{**asdict(PLAIN), "train_watts": -3}], "line 2: train_watts: expected a number of at least 0 and at most 500"),
        ([{**asdict(PLAIN), "share": "nan"}], "line 2: share: expected a number above 0, found nan"),
        ([asdict(PLAIN), asdict(PLAIN)], "has two classes named 'plain'; rename one"),
    ],
)  # fmt: skip
def test_table_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, rows: list[dict[str, object]], message: str
) -> None:
    path = written(tmp_path / "own.csv", rows)
    with pytest.raises(ConfigurationError) as caught:
        device_classes(str(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "cannot read the device profiles (No such file or directory)"),
        ("empty.csv", ",".join(COLUMNS), "has no device profile; add one"),
        ("blank.csv", "", "is empty; expected a line with the columns name, share, "),
        ("own.yaml", "a: [", "not YAML"),
        ("own.yaml", "- 1", "expected a mapping 'classes'"),
        ("own.yaml", "classes: {a: 1}", "class a: expected a value for each column, found 1"),
        ("own.json", "{}", "not a device profile of version 1"),
        ("own.txt", "", "expected phones, a .csv, .yaml or .json file, or a folder"),
    ],
)
def test_file_that_is_no_table_is_refused(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        device_classes(str(tmp_path / name))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_profile_without_a_speed_is_refused(tmp_path: Path) -> None:
    path = replace(PROFILE, relative_speed=None).write(tmp_path)
    with pytest.raises(ConfigurationError, match="has no relative_speed"):
        device_classes(str(path))


def test_columns_are_those_of_a_class() -> None:
    assert tuple(asdict(PLAIN)) == COLUMNS
    assert isinstance(PLAIN, DeviceClass)
