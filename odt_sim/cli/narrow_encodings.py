"""Output to terminals and files whose encoding lacks some characters, such as Latin-1 or ASCII."""

import codecs
import sys
from io import TextIOWrapper

LOOKALIKES = {"−": "-", "–": "-", "±": "+-", "…": "...", "↗": "^", "†": "+", "‡": "#"}
"""Replacements for characters that reports print; all others become question marks."""


def never_fail() -> None:
    """Replace characters that the encoding of stdout or stderr lacks with lookalikes, to avoid an error after a run."""
    codecs.register_error("lookalikes", _lookalikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="lookalikes")


def _lookalikes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(LOOKALIKES.get(each, "?") for each in error.object[error.start : error.end]), error.end
