"""The command `odt-sim deploy`: write the models of a run for phones."""

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from odt_sim.cli.command_table import FORMATS, parsed
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run import find_runs, one_run
from odt_sim.persistence.run_folder import RunFolder

if TYPE_CHECKING:
    from odt_sim.data.devices.federated import FederatedData
    from odt_sim.simulation.run.coordinator import Simulation


UNMEASURED = "not measured: the run was started from Python, so its data is unknown here"


def deploy(arguments: Sequence[str]) -> int:
    """Write models of a run, print their sizes and scores, and return the exit code."""
    # After --format, argparse would parse such an override as a format.
    data = [each for each in arguments if re.match(r"data\.[\w.]+=", each)]
    options = parsed("deploy", [each for each in arguments if each not in data])
    options.overrides += data
    _deploy(options.run, options)
    return 0


def _deploy(run: Path, options: Namespace) -> None:
    from odt_sim.cli.hydra.build import saved_simulation
    from odt_sim.cli.hydra.saved_config import is_saved, saved_config
    from odt_sim.deploy.write import INPUTS, TABLE, deploy_new, deploy_trained

    folder = one_run(find_runs([run]), run)
    output = options.output or folder / "deploy"
    if options.new and options.format is not None:
        raise ConfigurationError(
            "--format: does not apply to --new, whose model is for training on the phone; leave it out"
        )
    if not is_saved(folder) and (options.shared or options.new):
        formats = () if options.new else ("float32", "float16") if options.format is None else options.format
        name = "new" if options.new else "global"
        written = deploy_trained(folder, output, name, tuple(dict.fromkeys(formats)))
        _print(_table(written, []), [f"files and table: {output}, {output / TABLE}", UNMEASURED])
        return
    if saved_config(folder).get("backend", {}).get("examples") == "own":
        raise ConfigurationError(
            f"{folder}: its phones kept their examples, so files cannot be calibrated or measured here; "
            f"get the models in Python: odt_sim.Results.load({str(folder)!r}).device(0).model()"
        )
    simulation = saved_simulation(folder, options.overrides)
    rows: Sequence[Mapping[str, Any]] = (
        deploy_new(simulation, output) if options.new else _rows(simulation, output, options)
    )
    job = simulation.job
    lines = [f"files and table: {output}, {output / TABLE}"]
    if simulation.data.scales:
        of_device = (
            "over the phone's own training examples" if options.new or options.shared else f"by {output / INPUTS}"
        )
        lines.append(f"inputs: (x - mean) / deviation, {of_device.format('ID')}")
    summary = RunFolder(folder).summary()
    private = summary is not None and summary.privacy is not None
    if options.shared and private and any(row["format"] == "int8" for row in rows):
        lines.append(
            "privacy: the ranges in the int8 file come from the devices' training examples, which epsilon does not "
            "cover; "
            "to leave the file out: --format float32 float16"
        )
    _print(_table(rows, [job.metrics[0], "loss", *(own.name for own in job.own_metrics)]), lines)


def _print(table: Table, lines: Sequence[str]) -> None:
    console = Console()
    console.print(table)
    console.print("\n" + "\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _rows(simulation: "Simulation", output: Path, options: Namespace) -> list[Mapping[str, Any]]:
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


def _devices(data: "FederatedData", options: Namespace) -> Sequence[int] | None:
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


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Return the table of rows with these metrics, each once; – for an undefined metric."""
    metrics = list(dict.fromkeys(names))
    table = Table("file", "bytes", *metrics, "ms", "rows", title="Files", title_justify="left", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        figures = (f"{row[name]:.4f}" if name in row else "–" for name in metrics)
        time, size = (f"{row['milliseconds']:.3g}", str(row["rows"])) if "rows" in row else ("–", "–")
        table.add_row(row["file"], f"{row['bytes']:,}", *figures, time, size)
    return table
