"""Export two cases of each family of the coverage table: `python coverage_files.py FOLDER`.

A test runs this in another process, so that TensorFlow stays out of its own.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

EXPORT = Path(__file__).parents[1] / "export"
sys.path.insert(0, str(EXPORT))

import keras  # noqa: E402
from coverage_table import FAMILIES  # noqa: E402
from parity.case import Case  # noqa: E402
from parity.models import MODELS  # noqa: E402
from test_export_contract import Wide  # noqa: E402

from odt_sim.export import convert_saved_model, export_model, save_model, save_tflite_model  # noqa: E402

OTHERS = {"Lamb"}  # an optimizer that no configuration can name


def chosen() -> Iterator[tuple[str, Case]]:
    """Yield the first and the last case of each family, with a name for its file."""
    for family in FAMILIES:
        if family is not MODELS:  # see test_zoo
            for case in family.cases:
                if case in (family.cases[0], family.cases[-1]) or case.name in OTHERS:
                    yield f"{family.title}, {case.name}", case


def main(folder: Path) -> None:
    for name, case in chosen():
        keras.backend.clear_session()
        keras.utils.set_random_seed(4)
        export_model(
            case.build(), folder / f"{name}.tflite", loss=case.loss(), optimizer=case.optimizer(), batch_size=8
        )
    save_model(Wide(), folder / "wide")
    save_tflite_model(convert_saved_model(folder / "wide"), folder / "a function with int64 and booleans.tflite")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
