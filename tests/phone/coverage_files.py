"""Export the chosen cases of the coverage table, unless FOLDER has them: `python coverage_files.py FOLDER`.

A test runs this in another process, so that TensorFlow stays out of its own.
"""

import sys
from pathlib import Path

EXPORT = Path(__file__).parents[1] / "export"
sys.path.insert(0, str(EXPORT))

import keras  # noqa: E402
from coverage_exports import chosen  # noqa: E402
from test_export_contract import Wide  # noqa: E402

from odt_sim.export import convert_saved_model, export_model, save_model, save_tflite_model  # noqa: E402


def main(folder: Path) -> None:
    for name, case in chosen():
        if (folder / name).exists():
            continue
        keras.backend.clear_session()
        keras.utils.set_random_seed(4)
        export_model(case.build(), folder / name, loss=case.loss(), optimizer=case.optimizer(), batch_size=8)
    save_model(Wide(), folder / "wide")
    save_tflite_model(convert_saved_model(folder / "wide"), folder / "a function with int64 and booleans.tflite")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
