"""Cases of the coverage table whose exported files are kept by the parity tests and run by tests/phone.

Two of each family, all optimizers, and all models that do not magnify rounding.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from coverage_folder import coverage_folder
from coverage_table import FAMILIES
from parity.case import Case
from parity.models import MODELS, SENSITIVE
from parity.optimizers import OPTIMIZERS

APART = (*SENSITIVE, "resnet8", "Ftrl")  # numbers nearly cancel; see tests/phone/test_zoo.py


def chosen() -> Iterator[tuple[str, Case]]:
    """Yield the cases with the names of their files."""
    for family in FAMILIES:
        for case in family.cases if family in (MODELS, OPTIMIZERS) else (family.cases[0], family.cases[-1]):
            if case.name not in APART:
                yield f"{family.title}, {case.name}.tflite".replace("/", " "), case


def keep(case: Case, exported: Path) -> None:
    """Copy the file of a case into the folder if it is one of the chosen."""
    for name, other in chosen():
        kept = coverage_folder() / name
        if other is case and not kept.exists():
            temporary = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(exported, temporary)
            temporary.rename(kept)
