"""The table of `docs/export.md`, from the cases that are tested: `python tests/export/coverage_table.py` writes it anew."""

from pathlib import Path

from parity.case import Family
from parity.convolutions import CONVOLUTIONS, POOLINGS
from parity.layers import DENSE, NORMALIZATIONS, RANDOM, WEIGHTS
from parity.losses import LOSSES
from parity.models import MODELS
from parity.optimizers import OPTIMIZERS, STEPS
from parity.sequences import ATTENTION, RECURRENT
from parity.shapes import ELEMENTWISE, SHAPES

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
BEGIN = "<!-- written by tests/export/coverage_table.py from the cases that are tested -->\n"
END = "<!-- end -->\n"
FAMILIES = (
    DENSE,
    CONVOLUTIONS,
    POOLINGS,
    NORMALIZATIONS,
    RANDOM,
    RECURRENT,
    ATTENTION,
    SHAPES,
    ELEMENTWISE,
    WEIGHTS,
    LOSSES,
    OPTIMIZERS,
    STEPS,
    MODELS,
)


def table() -> str:
    """Returns a row for each family: its subjects with their settings, and the file that its cases stand in."""
    rows = [f"| {family.title} | {_covered(family)} | `{family.file}` |\n" for family in FAMILIES]
    return "".join(["| | what | cases in `tests/export/` |\n", "|---|---|---|\n", *rows])


def _covered(family: Family) -> str:
    settings: dict[str, dict[str, None]] = {}
    for case in family.cases:
        for subject, own in case.subjects.items():
            settings.setdefault(subject, {}).update(dict.fromkeys(own))
    return ", ".join(f"{subject} ({', '.join(own)})" if own else subject for subject, own in settings.items())


def page(text: str) -> str:
    """Returns the page with the table between its two markers as it should be."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
