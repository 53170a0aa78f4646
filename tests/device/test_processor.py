"""The processor's name and features, read from Linux."""

from pathlib import Path

import pytest

from odt_sim.device.processor import has_avx512


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model name\t: one\nflags\t\t: fpu avx2 avx512f avx512dq\n", True),
        ("model name\t: avx512f\nflags\t\t: fpu avx2\n", False),
        ("Features\t: fp asimd\n", False),
    ],
)
def test_flags_tell_of_avx512(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert has_avx512(tmp_path / "cpuinfo") is expected


def test_another_system_says_nothing(tmp_path: Path) -> None:
    assert not has_avx512(tmp_path / "cpuinfo")
