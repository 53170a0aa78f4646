"""The files of deployed models, and their table."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim._support.files import write_file
from odt_sim.deploy.formats import FORMATS, inference_files
from odt_sim.deploy.int8 import check_installed
from odt_sim.deploy.measure import measured
from odt_sim.deploy.models import global_file, new_model, personal_model, with_content
from odt_sim.device.examples import Examples
from odt_sim.errors import CheckpointError, ModelError
from odt_sim.model.contract.names import full
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.simulation.run.coordinator import Simulation

TABLE = "files.csv"
INPUTS = "device_{}_inputs.json"
"""The file with the scales by which a device standardizes its inputs; only where data is standardized per device."""
CLASSES = "classes.json"
"""The file with the name of each class, in the order of the outputs; only where the data names its classes."""

Row = dict[str, Any]


def deploy(
    simulation: Simulation,
    output: Path,
    devices: Sequence[int] | None,
    formats: Sequence[str] = FORMATS,
) -> Iterator[list[Row]]:
    """Write the models of a complete run, measure them, and yield their rows of the table, model by model.

    Each model gives `<name>.tflite`, trainable, and `<name>_infer_<format>.tflite` for each format; `<name>` is
    `device_<id>` or `global`. The files are written once all of them are converted and measured. Where each device
    standardizes its inputs, `device_<id>_inputs.json` has its mean and deviation of each input, with which an app
    computes `(input - mean) / deviation`. `classes.json` has the names of the classes, if the data has them.

    Args:
        simulation: The run.
        output: The folder to write to.
        devices: The devices' ids; None for the global model.
        formats: The formats of the files for inference only.

    Raises:
        OdtSimError: The device or model does not exist, or cannot be converted or written.
    """
    if "int8" in formats:
        check_installed()
    _check_ops(simulation.model)
    if devices is None:
        path = global_file(simulation.directory)
        model = with_content(simulation.model, path.read_bytes(), str(path))
        pooled = (_pooled(simulation, split) for split in ("train", "test"))
        yield _write(output, "global", model, formats, simulation, *pooled)
        return
    for device in simulation.deployed(devices):
        name, examples = f"device_{device.id}", (device.train_examples, device.test_examples)
        rows = _write(output, name, personal_model(device), formats, simulation, *examples)
        if simulation.data.scales:
            write_file(output / INPUTS.format(device.id), _scales(simulation, device.id))
        yield rows


def deploy_trained(folder: Path, output: Path, name: str, formats: Sequence[str]) -> list[Row]:
    """Write the server's model of a complete run, and return its rows of the table, with bytes only.

    Nothing else of the run is needed, so that runs started from Python can be deployed, too.

    Args:
        folder: The run's folder.
        output: The folder to write to.
        name: The beginning of the files' names.
        formats: The formats of the files for inference only, without `int8`.

    Raises:
        OdtSimError: There is no such model, or it cannot be converted or written.
    """
    model = TrainableModel.load(global_file(folder))
    _check_ops(model)
    return _write(output, name, model, formats)


def deploy_new(simulation: Simulation, output: Path) -> list[Row]:
    """Write `new.tflite`, the model for users who join after a complete run, and return its row of the table.

    It is measured, without further training, on the test examples of all seen devices.

    Args:
        simulation: The run.
        output: The folder to write to.

    Raises:
        OdtSimError: There is no such model, or it cannot be made or written.
    """
    _check_ops(simulation.model)
    pooled = (_pooled(simulation, split) for split in ("train", "test"))
    return _write(output, "new", new_model(simulation), (), simulation, *pooled)


def _check_ops(model: TrainableModel) -> None:
    flex = sorted({op for ops in model.operators.values() for op in ops if op.startswith("Flex")})
    if flex:
        raise ModelError(
            f"{model.where}: contains Flex ops ({', '.join(flex[:3])}) that LiteRT cannot run on a phone; rewrite "
            "the file with odt-sim deflex, and run again"
        )


def _write(
    output: Path,
    name: str,
    model: TrainableModel,
    formats: Sequence[str],
    simulation: Simulation | None = None,
    train: Examples | None = None,
    test: Examples | None = None,
) -> list[Row]:
    """Write the files of a model, measured on test examples if there are any, and return their rows of the table."""
    contents = {f"{name}.tflite": ("trainable", model.content)}
    for format, content in inference_files(model, formats, train).items():
        contents[f"{name}_infer_{format}.tflite"] = (format, content)
    rows: list[Row] = []
    for file, (format, content) in contents.items():
        own = simulation.job.own_metrics if simulation else ()
        figures = measured(content, model, test, file, own, train) if test is not None else {"bytes": len(content)}
        rows.append({"file": file, "format": format, **figures})
    table = _with_rows(output / TABLE, rows)
    for file, (_, content) in contents.items():
        write_file(output / file, content)
    write_file(output / TABLE, table)
    if simulation and (names := simulation.data.class_names):
        write_file(output / CLASSES, json.dumps(names, ensure_ascii=False).encode())
    return rows


def _scales(simulation: Simulation, device: int) -> bytes:
    """Return a device's mean and deviation of each input by its name in the file's signatures, as JSON."""
    names = tuple(simulation.model.inputs)
    inputs = {}
    for key, scale in simulation.data.scales.items():
        # Arrays without names are in the model's order; a model's single input takes a single array of any name.
        name = key if key in names else names[int(key) if key.isdigit() else 0]
        mean, deviation = scale.of(device)
        inputs[full("x", name)] = {"mean": mean.tolist(), "deviation": deviation.tolist()}
    return json.dumps(inputs).encode()


def _pooled(simulation: Simulation, split: str) -> Examples:
    """Return the examples of all devices that took part in training."""
    data = simulation.data
    part = data.train if split == "train" else data.test
    seen = [record.device for record in RunFolder(simulation.directory).devices() if record.seen]
    return Examples(data.x, data.y, np.concatenate([part(device) for device in seen]))


def _with_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the table with the rows of files, which replace earlier rows of the same files."""
    written = {row["file"] for row in rows}
    kept = [row for row in _table(path) if row["file"] not in written]
    columns = list(dict.fromkeys(name for row in (*kept, *rows) for name in row))
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows([*kept, *rows])
    return text.getvalue().encode()


def _table(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text())))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); remove it") from error
    if any("file" not in row for row in rows):
        raise CheckpointError(f"{path}: not a table of deployed files; remove it, or choose another folder: --output")
    return rows
