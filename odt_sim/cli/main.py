"""The command `odt-sim`: run, report, export, inspect."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from odt_sim.cli.interrupt import Interrupted, interruptible, leave
from odt_sim.cli.streams import finish, say, take_output
from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.files import write_file
from odt_sim.model.trainable import TrainableModel

USAGE = """usage: odt-sim COMMAND ...

  run [-m] [OVERRIDE ...]     run an experiment; with -m a sweep: odt-sim run -m strategy=local,fedavg seed=0,1,2
  report DIR ... [-o FILE] [--best] [--against LABEL] [--target VALUE]
                              compare runs that are on disk, as tables and a page
  export [-o FILE] [OVERRIDE ...]
                              write the configured model's .tflite: odt-sim export model=mnist_cnn
  inspect FILE                print the signatures, parameters and ops of a .tflite file

  odt-sim run --help lists the groups of the configuration, odt-sim run --cfg job prints it whole.
  odt-sim --version prints the version.
"""


def command() -> int:
    """The process `odt-sim`; returns its exit code, or ends at once where it was interrupted: Ray says farewell for seconds.

    What Ray has started on this machine ends with it; where it is killed, two agents of Ray's stay for about a minute.
    """
    take_output()
    try:
        code = main()
    finally:
        finish()
    if code > 128:
        leave(code)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    Returns:
        0; 1 for an error, told in one line, or a job of a sweep that failed; 2 for a wrong call; 130 when interrupted by
        Ctrl-C; 143 by SIGTERM; 129 by SIGHUP.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with interruptible():
            code = _done(given)
            sys.stdout.flush()
            return code
    except OdtSimError as error:
        say(f"error: {' '.join(str(error).split())}")
        return 1
    except Interrupted as stop:
        say(stop)
        return stop.exit_code
    except BrokenPipeError:  # whoever read our output has gone
        return 1


def _done(given: Sequence[str]) -> int:
    commands = {"run": run, "report": report, "export": export, "inspect": inspect}
    if given[:1] == ["--version"]:
        print(version("odt_sim"))
        return 0
    if not given or given[0] not in commands:
        asked = given[:1] in (["-h"], ["--help"])
        print(USAGE, end="", file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    return commands[given[0]](given[1:])


def run(arguments: Sequence[str]) -> int:
    """Runs an experiment, or a sweep of them, and prints the comparison.

    Raises:
        OdtSimError: The configuration is wrong or the run failed.
    """
    from odt_sim.cli.run import launch

    outcome = launch(arguments)
    failures = print_comparison([outcome.folder]) if outcome.folder else 0
    return 1 if outcome.failed or failures else 0


def print_comparison(folders: Sequence[Path], output: Path | None = None, **options: Any) -> int:
    """Writes the report page, prints the tables and the page's path, and returns how many runs failed.

    Args:
        folders: Run folders, or folders that hold runs.
        output: The page's path, by default `report.html` in the folder.
        options: Of `odt_sim.report.comparison.compare`.

    Raises:
        CheckpointError: A folder holds no run.
        FileError: The page cannot be written.
        ConfigurationError: The runs cannot be compared as the options ask.
    """
    from rich.console import Console

    from odt_sim.report.comparison import compare
    from odt_sim.report.page import page_path, write_report
    from odt_sim.report.table import comparison_table, paired_table

    comparison = compare(folders, **options)
    page = output or page_path(folders)
    write_report(comparison, page)
    console = Console()
    for table in (comparison_table(comparison, console.width), paired_table(comparison, console.width)):
        if table is not None:
            console.print()
            console.print(table)
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False, markup=False)
    return len(comparison.failures)


def report(arguments: Sequence[str]) -> int:
    """Rebuilds the comparison of runs from what is on disk."""
    parser = argparse.ArgumentParser("odt-sim report", description="Compare runs that are on disk.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a run's folder, or one that holds runs")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page; by default report.html in DIR")
    parser.add_argument(
        "--best", action="store_true", help="of each strategy only the configuration that validates best"
    )
    parser.add_argument("--against", metavar="LABEL", help="the strategy, or the row, that others are compared with")
    parser.add_argument("--target", type=float, metavar="VALUE", help="count the rounds to this mean, such as 0.9")
    options = vars(parser.parse_args(arguments))
    print_comparison(options.pop("folders"), **options)
    return 0


def export(arguments: Sequence[str]) -> int:
    """Writes the configured model's `.tflite`."""
    from odt_sim.cli.build import add_working_folder, model_file
    from odt_sim.cli.overrides import check_keys, composed

    parser = argparse.ArgumentParser("odt-sim export", description="Write the configured model's .tflite.")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="such as model=mnist_cnn model.batch_size=64")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="by default the model's name with .tflite")
    options = parser.parse_args(arguments)
    add_working_folder()
    config = composed(options.overrides)
    check_keys(config)
    if "build" not in config.model:
        raise ConfigurationError("model: is a .tflite file already; choose a model that is built with Keras")
    output: Path = options.output or Path(f"{config.model.name}.tflite")
    write_file(output, model_file(config).read_bytes())
    model = TrainableModel.load(output)
    floats, signatures = model.layout.size, ", ".join(model.signatures)
    print(f"{output}: {len(model.content):,} bytes, {floats:,} parameters, signatures {signatures}")
    return 0


def inspect(arguments: Sequence[str]) -> int:
    """Prints the signatures, parameters and ops of a `.tflite` file."""
    from odt_sim.cli.inspect import print_model

    parser = argparse.ArgumentParser("odt-sim inspect", description="Print what a .tflite file holds.")
    parser.add_argument("file", type=Path, metavar="FILE", help="a .tflite file")
    print_model(parser.parse_args(arguments).file)
    return 0
