"""Device profiles: their files, their names, and invalid profiles."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from odt_sim.errors import ConfigurationError
from odt_sim.fleet.profile import DeviceProfile, Timing, slug

TIMINGS = {"train": Timing(16, 2.0, 1.5, 2.5, 100), "infer": Timing(16, 1.0, 0.5, 1.5, 100)}
PROFILE = DeviceProfile("Pixel 8", "digits_cnn", "f" * 64, TIMINGS, 12.5, cores=9, battery=0.5, charging=False)


def changed(**changes: Any) -> str:
    values = {"format_version": 1, **asdict(PROFILE), **changes}
    return json.dumps({name: value for name, value in values.items() if value != "absent"})


def test_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = PROFILE.write(tmp_path / "profiles")
    assert path.name == "pixel-8.json"
    assert DeviceProfile.read(path) == PROFILE


def test_earlier_profile_of_the_same_name_is_kept(tmp_path: Path) -> None:
    first, second = PROFILE.write(tmp_path), replace(PROFILE, cores=4).write(tmp_path)
    assert [first.name, second.name] == ["pixel-8.json", "pixel-8-2.json"]
    assert [DeviceProfile.read(path).cores for path in (first, second)] == [9, 4]


def test_longest_name_is_a_file(tmp_path: Path) -> None:
    assert replace(PROFILE, name="𠀀" * 80).write(tmp_path).stem == "𠀀" * 40  # four bytes each


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Pixel 8", "pixel-8"),
        ("../../etc/passwd", "etc-passwd"),
        ("Größe ÄÖ 1", "größe-äö-1"),
        ("Gro\u0308\u00dfe", "größe"),
        ("日本の電話", "日本の電話"),
        ("a\0b\u202ec\u2044d__e", "a-b-c-d-e"),
        ("a" * 80, "a" * 40),
        ("/", ""),
    ],
)
def test_names_become_safe_parts_of_paths(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "not a JSON object"),
        ("{}", "no key 'format_version'"),
        (changed(format_version=2), "format version 2"),
        (changed(weights=[1, 2]), "unknown key 'weights'"),
        (changed(name="absent"), "name"),
        (changed(cores=0), "profile.cores: expected a whole number of at least 1 or null, found 0"),
        (changed(battery=1.5), "profile.battery: expected a number of at least 0 and at most 1 or null, found 1.5"),
        (changed(user_agent=1), "profile.user_agent: expected text, found 1"),
        (
            changed(timings={"train": asdict(TIMINGS["train"])}),
            "profile.timings: expected one each for train and infer",
        ),
        (changed(timings={"train": {}, "infer": {}}), "missing"),
        (
            changed(timings={name: {**asdict(TIMINGS[name]), "median": 0} for name in TIMINGS}),
            "timing.median: expected",
        ),
        (changed(load_milliseconds=1e999), "profile.load_milliseconds: expected a number of at least 0, found inf"),
        ("[" * 100_000, ""),
    ],
)
def test_text_that_is_no_profile_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        DeviceProfile.from_json(text, "upload.json")
    message = str(refused.value)
    assert message.startswith("upload.json: not a device profile of version 1 (")
    assert reason in message


def test_name_without_a_letter_is_to_be_changed() -> None:
    with pytest.raises(ConfigurationError) as refused:
        DeviceProfile.from_json(changed(name="/"), "upload.json")
    expected = (
        "upload.json: profile.name: expected a name with a letter or a digit, found '/'; give the device another name"
    )
    assert str(refused.value) == expected


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no\.json: cannot read the device profile"):
        DeviceProfile.read(tmp_path / "no.json")
