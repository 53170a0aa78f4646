"""Every test that docs/reliability.md names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = [line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if "`test" in line]


@pytest.mark.parametrize("line", LINES)
def test_the_tests_that_are_named_exist(line: str) -> None:
    """A name alone is of the file that is named before it."""
    content = ""
    for path, name in re.findall(r"`(tests/[\w./]+)?(?:::)?(test_\w+)?`", line):
        if path:
            assert (ROOT / path).exists()
            content = (ROOT / path).read_text() if path.endswith(".py") else ""
        if name:
            assert f"def {name}(" in content
