"""Two cases of each family of the coverage table: `test_export_parity.py` keeps their files, and tests/phone runs them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from coverage_folder import coverage_folder
from coverage_table import FAMILIES
from parity.case import Case
from parity.models import MODELS

OTHERS = {"Lamb"}  # an optimizer that no configuration can name


def chosen() -> Iterator[tuple[str, Case]]:
    """Yield the first and the last case of each family, with the name of its file."""
    for family in FAMILIES:
        if family is not MODELS:  # see tests/phone/test_zoo.py
            for case in family.cases:
                if case in (family.cases[0], family.cases[-1]) or case.name in OTHERS:
                    yield f"{family.title}, {case.name}.tflite".replace("/", " "), case


def keep(case: Case, exported: Path) -> None:
    """Copy the file of a case into the folder if it is one of the chosen."""
    for name, other in chosen():
        kept = coverage_folder() / name
        if other is case and not kept.exists():
            temporary = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(exported, temporary)
            temporary.rename(kept)
