"""Output to terminals and files of an encoding that lacks some characters, such as Latin-1 or ASCII."""

import codecs
import sys
from io import TextIOWrapper

LOOKALIKES = {"−": "-", "–": "-", "±": "+-", "…": "...", "↗": "^", "†": "+", "‡": "#"}
"""What stands for characters that reports print; a question mark stands for all others."""


def never_fail() -> None:
    """Write lookalikes of characters that the encoding of stdout or stderr lacks, in place of an error after a run."""
    codecs.register_error("lookalikes", _lookalikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="lookalikes")


def _lookalikes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(LOOKALIKES.get(each, "?") for each in error.object[error.start : error.end]), error.end
