"""The command `odt-sim benchmark`: tune strategies on several tasks and rank them."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from odt_sim._support.files import write_file
from odt_sim._support.system import cores
from odt_sim._support.user_code import add_working_folder
from odt_sim.benchmark.cells import FOLDER, Cell, read_outcome
from odt_sim.benchmark.results import read_results, write_command
from odt_sim.cli.command_table import settings_usage
from odt_sim.cli.commands.tune import (
    central_rate,
    check_optuna,
    cleared_rate,
    fixed_overrides,
    resumable,
    run_all,
    split_arguments,
    trials_of,
    whole_number,
)
from odt_sim.cli.hydra.build import check, check_data, model
from odt_sim.cli.hydra.keys import check_keys
from odt_sim.cli.hydra.options import SHIPPED, Places, option_names, option_places
from odt_sim.cli.hydra.overrides import composed
from odt_sim.cli.messages import say, warn
from odt_sim.errors import ConfigurationError
from odt_sim.simulation.executors.submitted import lost
from odt_sim.tuning.plan import Plan, claim

TASKS = "experiment/benchmark"


def benchmark(arguments: Sequence[str]) -> int:
    """Tune strategies on several tasks, write the ranking page and return the exit code.

    The same command resumes interrupted work; further strategies, tasks, trials and seeds are added to finished ones.
    """
    if {"-h", "--help"} & set(arguments):
        print(settings_usage("benchmark"), end="")
        return 0
    with resumable("benchmark", arguments):
        return _benchmark(arguments)


def _benchmark(arguments: Sequence[str]) -> int:
    check_optuna("benchmark")
    values, overrides = split_arguments("benchmark", arguments)
    add_working_folder()
    places = option_places(None, overrides)
    strategies = _named(values, "strategy", options("strategy", places))
    plans = _plans(values, overrides, strategies, options(TASKS, places))
    if not plans:
        raise ConfigurationError("task: no task has its data; set the path of one, such as uci_har.data.path=PATH")
    folder = Path(values["output"])
    warn(lost(folder, "output"))
    jobs = whole_number("benchmark", "jobs", values["jobs"] or str(cores()), 1)
    deciding = [each for each in arguments if not each.startswith(("markdown=", "jobs="))]
    write_command(folder, f"odt-sim benchmark {shlex.join(deciding)}".rstrip(), jobs)
    run_all([Cell(task, strategy, plan) for strategy in strategies for task, plan in plans.items()], jobs)
    return _report(folder, plans, strategies, values["markdown"])


def _report(folder: Path, plans: dict[str, Plan], strategies: Sequence[str], markdown: str) -> int:
    """Write the page and the results in Markdown, print their paths, and return the exit code."""
    from odt_sim.benchmark.page import results_markdown, with_results, write_benchmark

    results = read_results(folder, [*plans], strategies)
    write_benchmark(results, folder / "report.html")
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


def options(group: str, places: Places = SHIPPED) -> list[str]:
    """Return the options of a group without those in folders, such as an experiment's settings for one strategy."""
    return [name for name in option_names(group, places) if "/" not in name]


def _named(values: Mapping[str, str], name: str, options: list[str]) -> list[str]:
    """Return the options that an argument names, by default all.

    Raises:
        ConfigurationError: An option does not exist.
    """
    named = [each for each in dict.fromkeys(values[name].split(",")) if each]
    if unknown := [each for each in named if each not in options]:
        raise ConfigurationError(f"{name}: expected some of {', '.join(options)}, found {unknown[0]!r}")
    return named or options


def _plans(
    values: Mapping[str, str], overrides: Sequence[str], strategies: Sequence[str], tasks: list[str]
) -> dict[str, Plan]:
    """Return the tuning plan of each task with data; print a line for each other task.

    Args:
        values: The command's own arguments, by name.
        overrides: The overrides of all runs, and those of single tasks, such as `uci_har.data.path=uci_har`.
        strategies: The strategies to tune.
        tasks: All tasks.

    Raises:
        OdtSimError: An argument does not fit, or a task's data cannot be read or does not fit its model.
    """
    trials = trials_of("benchmark", values)
    shared = [each for each in overrides if each.partition(".")[0] not in tasks]
    plans = {}
    for task in _named(values, "task", tasks):
        of_task = [each.removeprefix(f"{task}.") for each in overrides if each.startswith(f"{task}.")]
        of_trials = [f"+{TASKS}={task}", "backend=serial", *shared, *of_task]
        config = _task(task, of_trials)
        if config is None:
            continue
        base = model(config)
        rate = float(config.train.learning_rate or central_rate(base))
        check_data(config, base, rate)
        epochs = any(each.startswith("train.epochs=") for each in of_trials)
        plan = Plan(
            **trials,
            strategies=strategies,
            overrides=[
                *of_trials,
                *([] if epochs else [f"train.epochs={config.train.epochs}"]),
                *cleared_rate(config, of_trials),
            ],
            rate=rate,
            folder=Path(values["output"]) / task,
        )
        claim(plan, task)
        plans[task] = plan
    return plans


def _task(task: str, overrides: Sequence[str]) -> DictConfig | None:
    """Return the checked configuration of a task; None if the user has not set its data."""
    config = composed(fixed_overrides(overrides))
    check_keys(config)
    if missing := sorted(OmegaConf.missing_keys(config)):
        needed = " ".join(f"{task}.{key}=..." for key in missing)
        say(f"skipped {task}: {', '.join(missing)} is not set; pass {needed}")
        return None
    check(config)
    return config
