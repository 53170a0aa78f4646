"""The command `odt-sim benchmark`: tune strategies on several tasks and rank them."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.markup import escape

from odt_sim._support.files import write_file
from odt_sim._support.system import cores
from odt_sim._support.user_code import add_working_folder
from odt_sim.benchmark.cells import FOLDER, Cell, Outcome, ended, read_outcome
from odt_sim.benchmark.processes import run_cells
from odt_sim.benchmark.results import read_results, write_command
from odt_sim.cli.build import check, check_data, model
from odt_sim.cli.messages import say, warn
from odt_sim.cli.option_places import SHIPPED, Places, option_places
from odt_sim.cli.overrides import check_keys, composed
from odt_sim.cli.settings import COMPONENTS
from odt_sim.cli.settings_reference import option_names
from odt_sim.cli.tune import (
    central_rate,
    cleared_rate,
    fixed_overrides,
    resumable,
    seeds_of,
    split_arguments,
    whole_number,
)
from odt_sim.errors import ConfigurationError
from odt_sim.metrics.units import duration
from odt_sim.simulation.submitted import lost
from odt_sim.tuning.claim import claim
from odt_sim.tuning.plan import Plan

USAGE = """usage: odt-sim benchmark [task=A,B] [strategy=A,B] [budget=5] [seed=0,1,2]
                         [tuning_seed=1000] [jobs=N] [output=benchmark]
                         [markdown=FILE] [config_dir=DIR]
                         [TASK.KEY=VALUE ...] [OVERRIDE ...]

  task          tasks; default: all in conf/experiment/benchmark, without those
                that lack their data
  strategy      strategies; default: all in conf/strategy
  budget        trials per strategy and task
  seed          seeds of the compared runs
  tuning_seed   seed of all trials
  jobs          parallel processes; default: one per core
  output        output folder; repeat the command to resume
  markdown      also write the results to this file, replacing all after its
                line "## Results"
  config_dir    folder with your own options, such as
                DIR/experiment/benchmark/mine.yaml
  TASK.KEY      a setting of one task: uci_har.data.path=uci_har
  OVERRIDE      settings of all runs
"""
OWN = {
    "task": "",
    "strategy": "",
    "budget": "5",
    "seed": "0,1,2",
    "tuning_seed": "1000",
    "jobs": "",
    "output": "benchmark",
    "markdown": "",
    "config_dir": "",
}
TASKS = "experiment/benchmark"


@dataclass(frozen=True)
class Asked:
    """The parsed arguments.

    Attributes:
        given: The command's own arguments, by name.
        overrides: Overrides of all runs.
        of_tasks: Overrides of single tasks, by the task's name.
        config_folder: A folder with further options, or None.
        places: The places of options.
    """

    given: dict[str, str]
    overrides: Sequence[str]
    of_tasks: dict[str, list[str]]
    config_folder: str | None
    places: Places


def benchmark(arguments: Sequence[str]) -> int:
    """Tune strategies on several tasks, write the ranking page and return the exit code.

    The same command resumes interrupted work; further strategies, tasks, trials and seeds are added to finished ones.
    """
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    with resumable("benchmark", arguments):
        return _benchmark(_asked(arguments), arguments)


def _benchmark(asked: Asked, arguments: Sequence[str]) -> int:
    strategies = _named(asked, "strategy")
    plans = _plans(asked, strategies)
    folder = Path(asked.given["output"])
    if not plans:
        raise ConfigurationError("task: no task has its data; set the path of one, such as uci_har.data.path=PATH")
    warn(lost(folder, "output"))
    jobs = whole_number("benchmark", "jobs", asked.given["jobs"] or str(cores()), 1)
    deciding = [each for each in arguments if not each.startswith(("markdown=", "jobs="))]
    write_command(folder, f"odt-sim benchmark {shlex.join(deciding)}".rstrip(), jobs)
    cells = [Cell(task, each, plan, asked.config_folder) for each in strategies for task, plan in plans.items()]
    _run(cells, jobs)
    return _report(folder, plans, strategies, asked.given["markdown"])


def _run(cells: Sequence[Cell], jobs: int) -> None:
    """Run the cells that have not ended, and print a line with the remaining time for each."""
    waiting = [cell for cell in cells if ended(cell) is None]
    if len(waiting) < len(cells):
        say(f"already done: {len(cells) - len(waiting)} of {len(cells)}")
    started = time.monotonic()
    for done, (cell, outcome) in enumerate(run_cells(waiting, jobs), 1):
        left = (time.monotonic() - started) / done * (len(waiting) - done)
        place = f"{len(cells) - len(waiting) + done}/{len(cells)}"
        line = f"{place} {cell.task} {cell.strategy}: {_said(cell, outcome)}; about {duration(left)} left"
        say(escape(line))


def _said(cell: Cell, outcome: Outcome) -> str:
    if outcome.status == "refused":
        return f"not applicable, {outcome.reason}"
    if outcome.status == "failed":
        return f"failed, {outcome.reason}; see {cell.log}"
    assert outcome.winner is not None
    settings = " ".join(outcome.winner.settings)
    return f"{duration(outcome.seconds)}, validation {outcome.winner.validation:.4g} with {settings}"


def _report(folder: Path, plans: dict[str, Plan], strategies: Sequence[str], markdown: str) -> int:
    """Write the page and the results in Markdown, print their paths, and return the exit code."""
    from odt_sim.benchmark.markdown import results_markdown, with_results
    from odt_sim.benchmark.page import write_page

    results = read_results(folder, [*plans], strategies)
    write_page(results, folder / "report.html")
    text = results_markdown(results)
    write_file(folder / "results.md", text.encode())
    written = [folder / "report.html", folder / "results.md"]
    if markdown:
        path = Path(markdown)
        write_file(path, with_results(path.read_text() if path.exists() else "", text).encode())
        written.append(path)
    print(f"report: {', '.join(map(str, written))}")
    ran = {task.name for task in results.tasks}
    for task in (task for task in plans if task not in ran):
        reason = read_outcome(plans[task].folder / FOLDER / f"{strategies[0]}.json")
        print(f"error: {task}: no strategy ran: {reason and reason.reason}", file=sys.stderr)
    return int(
        len(ran) < len(plans)
        or any(task.outcomes[each].status == "failed" for task in results.tasks for each in strategies)
    )


def _asked(arguments: Sequence[str]) -> Asked:
    own, others = split_arguments("benchmark", arguments, OWN)
    given = {**OWN, **own}
    folder = given["config_dir"] or None
    if folder and not Path(folder).is_dir():
        raise ConfigurationError(
            f"config_dir: expected a folder with experiment/benchmark/TASK.yaml or other groups, found no folder {folder}; "
            "give its path"
        )
    add_working_folder()
    places = option_places(folder, others)
    names = options(TASKS, places)
    of_tasks: dict[str, list[str]] = {name: [] for name in names}
    overrides = []
    for each in others:
        task, dot, rest = each.partition(".")
        if dot and task in of_tasks:
            of_tasks[task].append(rest)
        else:
            overrides.append(each)
    return Asked(given, overrides, of_tasks, folder, places)


def options(group: str, places: Places = SHIPPED) -> list[str]:
    """Return the options of a group without those in folders, such as an experiment's settings for one strategy."""
    return [name for name in option_names(group, places) if "/" not in name]


def _named(asked: Asked, name: str, group: str = "strategy") -> list[str]:
    """Return the chosen options of a group, by default all.

    Raises:
        ConfigurationError: An option does not exist.
    """
    known = options(group, asked.places)
    named = [each for each in dict.fromkeys(asked.given[name].split(",")) if each]
    if unknown := [each for each in named if each not in known]:
        raise ConfigurationError(f"{name}: expected some of {', '.join(known)}, found {unknown[0]!r}")
    return named or known


def _plans(asked: Asked, strategies: Sequence[str]) -> dict[str, Plan]:
    """Return the tuning plan of each task with data; print a line for each other task.

    Raises:
        OdtSimError: An argument does not fit, or a task's data cannot be read or does not fit its model.
    """
    seeds, tuning_seed = seeds_of("benchmark", asked.given)
    budget = whole_number("benchmark", "budget", asked.given["budget"], 1)
    plans = {}
    for task in _named(asked, "task", TASKS):
        overrides = [f"+{TASKS}={task}", "backend=serial", *asked.overrides, *asked.of_tasks[task]]
        config = _task(task, overrides, asked.config_folder)
        if config is None:
            continue
        found = model(config)
        rate = float(config.train.learning_rate or central_rate(found))
        check_data(config, found, rate)
        given = any(each.startswith("train.epochs=") for each in overrides)
        plan = Plan(
            strategies=strategies,
            budget=budget,
            seeds=seeds,
            tuning_seed=tuning_seed,
            overrides=[
                *overrides,
                *([] if given else [f"train.epochs={config.train.epochs}"]),
                *cleared_rate(config, overrides),
            ],
            sweeper="optuna" if find_spec("optuna") else "random",
            rate=rate,
            folder=Path(asked.given["output"]) / task,
        )
        claim(plan, task)
        plans[task] = plan
    return plans


def _task(task: str, overrides: Sequence[str], folder: str | None) -> DictConfig | None:
    """Return the checked configuration of a task; None if the user has not set its data."""
    config = composed(fixed_overrides(overrides), folder)
    check_keys(config, COMPONENTS)
    if missing := sorted(OmegaConf.missing_keys(config)):
        needed = " ".join(f"{task}.{key}=..." for key in missing)
        say(f"skipped {task}: {', '.join(missing)} is not set; pass {needed}")
        return None
    check(config)
    return config
