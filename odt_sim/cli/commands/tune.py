"""The command `odt-sim tune`: give each strategy the same number of trials, and compare the winners."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from odt_sim._support.checks import checked_count
from odt_sim._support.files import write_file
from odt_sim._support.system import package
from odt_sim._support.user_code import add_working_folder
from odt_sim.benchmark.cells import Cell, Outcome, ended, read_outcome
from odt_sim.benchmark.processes import run_cells
from odt_sim.cli.command_table import COMMANDS, settings_usage
from odt_sim.cli.commands.report import print_comparison
from odt_sim.cli.hydra.build import check_data, model
from odt_sim.cli.hydra.keys import check_keys, known_keys, takes, unknown_key
from odt_sim.cli.hydra.overrides import composed, key_of
from odt_sim.cli.hydra.settings import GROUPS
from odt_sim.cli.messages import say, warn
from odt_sim.device.plan import own_learning_rate
from odt_sim.errors import ConfigurationError
from odt_sim.metrics.units import duration
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.run_folder import SEARCH_PATH, TUNING, document
from odt_sim.simulation.executors.submitted import lost
from odt_sim.tuning.plan import OF_THE_SEARCH, Plan, applied, claim, folder_of, is_fixed
from odt_sim.tuning.space import check_searched, first_values, parsed_space
from odt_sim.tuning.winners import Winner, choice_of, ended_trials

SET_BY_COMMAND = {
    "hydra.sweeper.n_trials": "give the trials of each strategy by budget=...",
    "hydra/sweeper": "draw at random by hydra.sweeper.sampler=random",
    "run.resume": "the same command resumes interrupted work",
}
"""Settings of a search that the command sets, with what to do instead."""
NEAR = 0.7  # similarity to an argument above which a key counts as misspelt: "strategies" has 0.78
DEFAULT_RATE = 0.1  # if the model's optimizer has no learning rate; the search covers two decades around it


def tune(arguments: Sequence[str]) -> int:
    """Tune strategies, print the comparison of the winners and return the exit code.

    The same command resumes interrupted work, and a larger budget continues the searches.
    """
    if {"-h", "--help"} & set(arguments):
        print(settings_usage("tune"), end="")
        return 0
    with resumable("tune", arguments):
        return _tune(*_plan(arguments))


def _tune(plan: Plan, jobs: int) -> int:
    warn(lost(plan.folder, "output"))
    claim(plan, "a tuning")
    say(escape(f"tuning in {plan.folder}"))
    cells = [Cell("tune", strategy, plan) for strategy in plan.strategies]
    run_all(cells, jobs)
    outcomes = [outcome for cell in cells if (outcome := read_outcome(cell.path))]
    winners = [outcome.winner for outcome in outcomes if outcome.winner]
    if not winners:
        return 1
    failures = _compare(plan, winners)
    return int(failures or len(winners) < len(cells))


def run_all(cells: Sequence[Cell], jobs: int) -> None:
    """Run the cells that have not ended, show the trials in flight, and print a line with the remaining time for each."""
    waiting = [cell for cell in cells if ended(cell) is None]
    if len(waiting) < len(cells):
        say(f"already done: {len(cells) - len(waiting)} of {len(cells)}")
    started, left = time.monotonic(), {cell.path: cell for cell in waiting}

    def trials() -> Text:
        counts = ((cell, sum(ended_trials(cell.plan.search_folder(cell.strategy)))) for cell in left.values())
        texts = [f"{cell.task} {cell.strategy} {count}/{cell.plan.budget}" for cell, count in counts if count]
        return Text("; ".join(["trials", *texts]) if texts else "")

    shown = Live(get_renderable=trials, console=Console(stderr=True), refresh_per_second=1, transient=True)
    with shown:
        for done, (cell, outcome) in enumerate(run_cells(waiting, jobs), 1):
            del left[cell.path]
            remaining = (time.monotonic() - started) / done * len(left)
            place = f"{len(cells) - len(waiting) + done}/{len(cells)}"
            line = f"{place} {cell.task} {cell.strategy}: {_said(cell, outcome)}; about {duration(remaining)} left"
            shown.console.print(escape(line), highlight=False, soft_wrap=True)


def _said(cell: Cell, outcome: Outcome) -> str:
    if outcome.status == "refused":
        return f"not applicable, {outcome.reason}"
    if outcome.status == "failed":
        return f"failed, {outcome.reason}; see {cell.log}"
    assert outcome.winner is not None
    settings = " ".join(outcome.winner.settings)
    return f"{duration(outcome.seconds)}, validation {outcome.winner.validation:.4g} with {settings}"


def _compare(plan: Plan, winners: Sequence[Winner]) -> bool:
    """Print the comparison of the winners' runs and their settings; return whether a run failed."""
    from odt_sim.tuning.tables import winners_section, winners_table  # draws plots, so import it only at the end

    choice = choice_of(plan, winners)
    write_file(plan.folder / TUNING, document(choice))
    folders = [plan.run_folder(each.strategy, each.trial) for each in winners]
    failures = print_comparison(folders, output=plan.folder / "report.html", further=[winners_section(choice)]).failures
    console = Console()
    console.print()
    console.print(winners_table(choice))
    return bool(failures)


@contextmanager
def resumable(command: str, arguments: Sequence[str]) -> Iterator[None]:
    """Add a note to an interrupt that the same command resumes."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"resume with: odt-sim {command} {shlex.join(arguments)}".rstrip())
        raise


def _plan(arguments: Sequence[str]) -> tuple[Plan, int]:
    """Return the plan of the arguments, and the number of strategies to tune at the same time.

    Raises:
        ConfigurationError: An argument does not fit.
    """
    values, overrides = split_arguments("tune", arguments)
    strategies = [each for each in dict.fromkeys(values["strategy"].split(",")) if each]
    if not strategies:
        raise ConfigurationError("strategy: expected the names of strategies, such as strategy=fedavg,ditto")
    trials = trials_of("tune", values)
    check_optuna("tune")
    add_working_folder()
    lacked = lacked_settings(strategies, overrides)
    plan = Plan(
        **trials,
        strategies=strategies,
        overrides=[*overrides, *cleared_rate(composed(_of_no_strategy(fixed_overrides(overrides))), overrides)],
        rate=central_rate(checked_model(strategies, overrides, lacked)),
        folder=Path(values["output"]) if values["output"] else folder_of(overrides, trials["tuning_seed"]),
        lacked=lacked,
    )
    return plan, whole_number("tune", "jobs", values["jobs"], 1)


def split_arguments(command: str, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the command's own arguments by name, with defaults, and the other arguments, which are overrides.

    Raises:
        ConfigurationError: An argument is not of the form KEY=VALUE, its key resembles one of the command's own, the
            command sets it, or `config_dir` does not exist.
    """
    defaults = {key: default for key, (default, _) in COMMANDS[command].settings.items()}
    pairs = [each.partition("=") for each in arguments]
    if wrong := next((each for each, (_, equals, _) in zip(arguments, pairs, strict=True) if not equals), None):
        raise ConfigurationError(f"{wrong}: expected KEY=VALUE; odt-sim {command} --help explains the command")
    for key in (key for key, _, _ in pairs if key.isidentifier() and key not in {*defaults, *GROUPS}):
        if near := get_close_matches(key, defaults, 1, NEAR):
            raise ConfigurationError(f"{key}: unknown argument of odt-sim {command}; did you mean {near[0]}?")
    for key in (key.lstrip("+") for key, _, _ in pairs):
        if key in SET_BY_COMMAND:
            raise ConfigurationError(f"{key}: odt-sim {command} sets it; {SET_BY_COMMAND[key]}")
    overrides = [each for each, (key, _, _) in zip(arguments, pairs, strict=True) if key not in defaults]
    values = {**defaults, **{key: value for key, _, value in pairs if key in defaults}}
    return values, [*overrides, *_search_path(values["config_dir"], overrides)]


def whole_number(command: str, name: str, value: str, low: int = 0) -> int:
    """Return the integer value of a command's argument.

    Raises:
        ConfigurationError: The value is no whole number, or too small.
    """
    try:
        return checked_count(name, int(value), low, group=command)
    except ValueError as error:
        raise ConfigurationError(f"{command}.{name}: expected a whole number, found {value!r}") from error


def check_optuna(command: str) -> None:
    """Check that Optuna is installed.

    Raises:
        ConfigurationError: It is missing.
    """
    package("optuna", f"odt-sim {command}: needs optuna", "tuning")


def trials_of(command: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields `budget`, `seeds` and `tuning_seed` of a `Plan`.

    Raises:
        ConfigurationError: The trials' seed is one of the compared runs', or an argument is no whole number.
    """
    seeds = [whole_number(command, "seed", seed) for seed in values["seed"].split(",")]
    tuning_seed = whole_number(command, "tuning_seed", values["tuning_seed"])
    if tuning_seed in seeds:
        raise ConfigurationError(
            f"tuning_seed: expected a seed that no compared run uses, found {tuning_seed}; change it, or seed"
        )
    return {"budget": whole_number(command, "budget", values["budget"], 1), "seeds": seeds, "tuning_seed": tuning_seed}


def fixed_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that all trials of a search share.

    Raises:
        ConfigurationError: A searched override determines the devices' examples.
    """
    of_runs = [each for each in overrides if not each.startswith(OF_THE_SEARCH)]
    check_searched(each.partition("=")[0] for each in of_runs if not is_fixed(each))
    return [each for each in of_runs if is_fixed(each)]


def cleared_rate(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Return the override that clears the model's own learning rate if trials draw one, since setting both is refused.

    Args:
        config: The configuration of all trials.
        overrides: The overrides of the configuration, and those that are searched.
    """
    rate = OmegaConf.select(config, "model.optimizer.learning_rate")
    fixed = any(each.startswith("train.learning_rate=") and is_fixed(each) for each in overrides)
    return ["model.optimizer.learning_rate=null"] if isinstance(rate, int | float) and not fixed else []


def lacked_settings(strategies: Sequence[str], overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides of settings that a strategy lacks, by strategy; they apply to the other strategies only.

    Raises:
        ConfigurationError: No strategy has a setting.
    """
    shared = _of_no_strategy(overrides)
    keys = {each: str(key_of(each)) for each in overrides if each not in shared}
    if any(key.endswith("._target_") for key in keys.values()):
        return {}
    fixed = fixed_overrides(shared)
    configs = {strategy: composed([f"strategy={strategy}", *fixed]) for strategy in strategies} if keys else {}
    lacked = {
        strategy: [each for each, key in keys.items() if not takes(config, key)] for strategy, config in configs.items()
    }
    for each in set.intersection(*map(set, lacked.values())) if lacked else ():
        raise ConfigurationError(unknown_key(keys[each], known_keys(configs[strategies[-1]])))
    return lacked


def _of_no_strategy(overrides: Sequence[str]) -> list[str]:
    return [each for each in overrides if not each.lstrip("+").startswith("strategy.")]


def _search_path(folder: str, overrides: Sequence[str]) -> list[str]:
    """Return the override that adds a folder of the user's options.

    Raises:
        ConfigurationError: There is no such folder, or an override sets the search path, too.
    """
    if folder and not Path(folder).is_dir():
        raise ConfigurationError(f"config_dir: expected a folder of options, found no folder {folder}; give its path")
    if folder and any(each.startswith(SEARCH_PATH) for each in overrides):
        raise ConfigurationError(
            f"config_dir: cannot be combined with {SEARCH_PATH}...; list the folder there, as file://{folder}"
        )
    return [f"{SEARCH_PATH}['file://{Path(folder).absolute()}']"] if folder else []


def checked_model(
    strategies: Sequence[str], overrides: Sequence[str], lacked: Mapping[str, Sequence[str]] | None = None
) -> TrainableModel:
    """Return the configured model after checking each strategy's configuration and the data.

    Args:
        strategies: The strategies to tune.
        overrides: The overrides of all runs.
        lacked: The overrides that do not apply to a strategy, by strategy.

    Raises:
        OdtSimError: A setting, the model or the data does not fit.
    """
    add_working_folder()
    for strategy in strategies:
        of_strategy = applied(overrides, lacked or {}, strategy)
        fixed = fixed_overrides(of_strategy)
        config = composed([f"strategy={strategy}", *fixed])
        check_keys(config)
    base = model(config)
    space, _ = parsed_space([each for each in of_strategy if not (is_fixed(each) or each.startswith(OF_THE_SEARCH))])
    complete = composed([f"strategy={strategies[-1]}", *fixed, *first_values(space)])
    check_data(complete, base, central_rate(base))
    return base


def central_rate(model: TrainableModel) -> float:
    """Return the learning rate at the centre of a search."""
    return own_learning_rate(model) or DEFAULT_RATE
