"""Generate the table of `docs/export.md` from the tested cases: `python tests/export/coverage_table.py`."""

import ast
import re
from pathlib import Path

from parity.case import Family
from parity.convolutions import CONVOLUTIONS, POOLINGS
from parity.fine_tuning import FINE_TUNING
from parity.functions import FUNCTIONS
from parity.layers import DENSE, NORMALIZATIONS, PREPROCESSING, RANDOM, WEIGHTS
from parity.losses import LOSSES
from parity.models import MODELS
from parity.optimizers import OPTIMIZERS, STEPS
from parity.own_layers import OWN_LAYERS
from parity.sequences import ATTENTION, RECURRENT
from parity.shapes import ELEMENTWISE, OPERATIONS, SHAPES
from parity.videos import VIDEOS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "export.md"
BEGIN = "<!-- written by tests/export/coverage_table.py from the cases that are tested -->\n"
END = "<!-- end -->\n"
FAMILIES = (
    DENSE,
    CONVOLUTIONS,
    POOLINGS,
    VIDEOS,
    NORMALIZATIONS,
    PREPROCESSING,
    RANDOM,
    RECURRENT,
    ATTENTION,
    SHAPES,
    ELEMENTWISE,
    OPERATIONS,
    FUNCTIONS,
    OWN_LAYERS,
    WEIGHTS,
    FINE_TUNING,
    LOSSES,
    OPTIMIZERS,
    STEPS,
    MODELS,
)
BESIDE = """test_export_contract test_export_dynamic test_export_random test_export_steps
test_export_any_loss test_export_own_steps test_export_sources test_tflite_model test_export_flex
lowering/test_lowering_functions lowering/test_lowering_single_ops""".split()  # noqa: SIM905


def table() -> str:
    """Return a row per family with its subjects and settings, and one per further test file."""
    rows = [(family.title, _covered(family), family.file) for family in FAMILIES]
    rows += [(*_said(name), f"{name}.py") for name in BESIDE]
    lines = [f"| {title} | {what} | `{file}` |\n" for title, what, file in rows]
    return "".join(["| | what | in `tests/export/` |\n", "|---|---|---|\n", *lines])


def _said(name: str) -> tuple[str, str]:
    """Return the docstring of a test file, split at its first colon or semicolon."""
    text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text())) or ""
    title, what = re.split("[:;] ", text.partition("\n")[0].rstrip("."), maxsplit=1)
    return title, what


def _covered(family: Family) -> str:
    settings: dict[str, dict[str, None]] = {}
    for case in family.cases:
        for subject, own in case.subjects.items():
            settings.setdefault(subject, {}).update(dict.fromkeys(own))
    return ", ".join(f"{subject} ({', '.join(own)})" if own else subject for subject, own in settings.items())


def page(text: str) -> str:
    """Return the page with the current table between its markers."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
