"""The command `odt-sim deploy`: write the models of a run for phones."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from odt_sim.deploy.formats import FORMATS
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run import find_runs, one_run
from odt_sim.persistence.run_folder import RunFolder

if TYPE_CHECKING:
    from odt_sim.data.federated import FederatedData
    from odt_sim.simulation.coordinator import Simulation


def deploy(arguments: Sequence[str]) -> int:
    """Write models of a run, print their sizes and scores, and return the exit code."""
    parser = argparse.ArgumentParser("odt-sim deploy", description="Write the models of a run for phones.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a complete run")
    parser.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="new path of the run's data, such as data.path=moved.npz"
    )
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--device", type=int, metavar="ID", help="the model of this device's user")
    chosen.add_argument("--user", metavar="ID", help="the model of the user with this id in the data")
    chosen.add_argument("--all", action="store_true", help="the model of every device")
    chosen.add_argument("--global", action="store_true", dest="shared", help="the server's model")
    chosen.add_argument("--new", action="store_true", help="the model that a new user's phone starts from")
    parser.add_argument(
        "--format",
        nargs="*",
        choices=FORMATS,
        help=f"formats of the inference files, in addition to the trainable file; by default {' '.join(FORMATS)}",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the folder to write to; by default RUN/deploy"
    )
    # After --format, argparse would parse such an override as a format.
    data = [each for each in arguments if re.match(r"data\.[\w.]+=", each)]
    options = parser.parse_intermixed_args([each for each in arguments if each not in data])
    options.overrides += data
    _deploy(options.run, options)
    return 0


def _deploy(run: Path, options: argparse.Namespace) -> None:
    from odt_sim.cli.build import saved_simulation
    from odt_sim.deploy.write import INPUTS, TABLE, deploy_new

    folder = one_run(find_runs([run]), run)
    output = options.output or folder / "deploy"
    _check_examples(folder)
    if options.new and options.format is not None:
        raise ConfigurationError(
            "--format: does not apply to --new, whose model is for training on the phone; leave it out"
        )
    simulation = saved_simulation(folder, options.overrides)
    rows = deploy_new(simulation, output) if options.new else _rows(simulation, output, options)
    console = Console()
    job = simulation.job
    console.print(_table(rows, [job.metrics[0], "loss", *(own.name for own in job.own_metrics)]))
    lines = [f"files and table: {output}, {output / TABLE}"]
    if simulation.data.scales:
        of_device = (
            "over the phone's own training examples" if options.new or options.shared else f"by {output / INPUTS}"
        )
        lines.append(f"inputs: (x - mean) / deviation, {of_device.format('ID')}")
    if options.shared and any(row["format"] == "int8" for row in rows) and _promises(folder):
        lines.append(
            "privacy: the ranges in the int8 file come from the devices' training examples, which epsilon does not "
            "cover; "
            "to leave the file out: --format float32 float16"
        )
    console.print("\n" + "\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _rows(simulation: "Simulation", output: Path, options: argparse.Namespace) -> list[Mapping[str, Any]]:
    """Write the models of devices or the server's model, and return the rows of the table."""
    from odt_sim.deploy.write import deploy

    formats = FORMATS if options.format is None else tuple(dict.fromkeys(options.format))
    devices = _devices(simulation.data, options)
    models = deploy(simulation, output, devices, formats)
    total = len(devices) if devices else 1
    progress = Console(stderr=True)
    hidden = not progress.is_terminal
    return [
        row for rows in track(models, "deploy", total, console=progress, transient=True, disable=hidden) for row in rows
    ]


def _devices(data: "FederatedData", options: argparse.Namespace) -> Sequence[int] | None:
    """Return the devices whose models are requested; None for the server's model."""
    if options.user is None:
        return None if options.shared else range(data.devices) if options.all else [options.device]
    users = [] if data.users is None else list(map(str, data.users.tolist()))
    if options.user not in users:
        known = (
            f"one of {', '.join(users[:5])}{', ..' if users[5:] else ''}" if users else "a run whose data has user ids"
        )
        raise ConfigurationError(f"--user: expected {known}, found {options.user!r}; or use --device")
    return [users.index(options.user)]


def _promises(folder: Path) -> bool:
    """Return whether a run guarantees differential privacy."""
    summary = RunFolder(folder).summary()
    return summary is not None and summary.privacy is not None


def _check_examples(folder: Path) -> None:
    """Refuse a run whose phones kept their examples."""
    from odt_sim.cli.saved_config import saved_config

    if saved_config(folder).get("backend", {}).get("examples") == "own":
        raise ConfigurationError(
            f"{folder}: its phones kept their examples, so files cannot be calibrated or measured here; "
            f"get the models in Python: odt_sim.Results.load({str(folder)!r}).device(0).model()"
        )


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Return the table of rows with these metrics, each once; – for an undefined metric."""
    metrics = list(dict.fromkeys(names))
    table = Table("file", "bytes", *metrics, "ms", "rows", title="Files", title_justify="left", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        figures = (f"{row[name]:.4f}" if name in row else "–" for name in metrics)
        table.add_row(row["file"], f"{row['bytes']:,}", *figures, f"{row['milliseconds']:.3g}", str(row["rows"]))
    return table
