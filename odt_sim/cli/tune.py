"""The command `odt-sim tune`: give each strategy the same number of trials, and compare the winners."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape

from odt_sim._support.checks import checked_count
from odt_sim._support.files import write_file
from odt_sim._support.system import in_daemon_thread
from odt_sim._support.user_code import add_working_folder
from odt_sim.cli.build import check_data, model
from odt_sim.cli.messages import say, warn
from odt_sim.cli.overrides import check_keys, composed, key_of, known_keys, takes, unknown_key
from odt_sim.cli.report import print_comparison
from odt_sim.cli.search_space import check_searched, first_values, parsed_space
from odt_sim.cli.settings import COMPONENTS, GROUPS
from odt_sim.device.plan import own_learning_rate
from odt_sim.errors import ConfigurationError
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.config_folders import SEARCH_PATH
from odt_sim.persistence.run_folder import TUNING, document
from odt_sim.simulation.submitted import lost
from odt_sim.tuning.claim import claim
from odt_sim.tuning.plan import OF_THE_SEARCH, Plan, applied, folder_of, is_fixed
from odt_sim.tuning.processes import LOG, Sweep, run_sweeps
from odt_sim.tuning.winners import Winner, choice_of, first_error, winner

USAGE = """usage: odt-sim tune strategy=A,B,... [budget=20] [seed=0,1,2]
                    [tuning_seed=1000] [jobs=1] [output=DIR] [config_dir=DIR]
                    [OVERRIDE ...]

  strategy      strategies to tune and to compare
  budget        trials per strategy
  seed          seeds of the compared runs
  tuning_seed   seed of all trials
  jobs          strategies that are tuned at the same time
  output        folder; default: one in tuning/, which the same command finds
                again
  config_dir    folder with your own options, such as DIR/strategy/mine.yaml
  OVERRIDE      settings of all runs; an interval replaces the default range:
                train.learning_rate=tag(log,interval(0.01,1)). Settings of a
                strategy apply to the strategies that have them.
"""
OWN = {
    "strategy": "",
    "budget": "20",
    "seed": "0,1,2",
    "tuning_seed": "1000",
    "jobs": "1",
    "output": "",
    "config_dir": "",
}
SET_BY_COMMAND = {
    "hydra.sweeper.n_trials": "give the trials of each strategy by budget=...",
    "hydra/sweeper": "draw at random by hydra.sweeper.sampler=random",
    "run.resume": "the same command resumes interrupted work",
}
"""Settings of a search that the command sets, with what to do instead."""
NEAR = 0.7  # similarity to an argument above which a key counts as misspelt: "strategies" has 0.78
PATIENCE = 1.0  # seconds that a search waits for the check of its data; with large data, the trials report errors
DEFAULT_RATE = 0.1  # if the model's optimizer has no learning rate; the search covers two decades around it


def tune(arguments: Sequence[str]) -> int:
    """Tune strategies, print the comparison of the winners and return the exit code.

    The same command resumes interrupted work, and a larger budget continues the searches.
    """
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    with resumable("tune", arguments):
        return _tune(*_plan(arguments))


def _tune(plan: Plan, jobs: int) -> int:
    warn(lost(plan.folder, "output"))
    claim(plan, "a tuning")
    say(escape(f"tuning in {plan.folder}, {plan.sweeper} search"))
    searches = [Sweep(each, plan.search(each), plan.search_folder(each), plan.budget) for each in plan.strategies]
    run_sweeps("search", searches, jobs)
    found = {each: winner(each, plan.search_folder(each)) for each in plan.strategies}
    for strategy in (strategy for strategy, each in found.items() if each is None):
        folder = plan.search_folder(strategy)
        why = first_error(folder) or f"see {folder / LOG}"
        say(f"[red]failed[/red] {strategy}: no trial has a validation metric; {escape(why)}")
    winners = [each for each in found.values() if each]
    return max(int(len(winners) < len(found)), _compare(plan, winners, jobs)) if winners else 1


def _compare(plan: Plan, winners: Sequence[Winner], jobs: int) -> int:
    """Run the winners for each seed of the report, and print their comparison and their settings."""
    from odt_sim.tuning.tables import winners_section, winners_table  # draws plots, so import it only at the end

    choice = choice_of(plan, winners)
    write_file(plan.folder / TUNING, document(choice))
    folders = [plan.run_folder(each.strategy, each.trial) for each in winners]
    runs = [
        Sweep(each.strategy, plan.report(each.strategy, each.settings), folder, len(plan.seeds))
        for each, folder in zip(winners, folders, strict=True)
    ]
    run_sweeps("report", runs, jobs)
    searched = [winners_section(choice)]
    failures = print_comparison(folders, output=plan.folder / "report.html", further=searched).failures
    console = Console()
    console.print()
    console.print(winners_table(choice))
    return 1 if failures else 0


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
    given, overrides = split_arguments("tune", arguments, OWN)
    own = {**OWN, **given}
    overrides += _search_path(own["config_dir"])
    strategies = [each for each in dict.fromkeys(own["strategy"].split(",")) if each]
    if not strategies:
        raise ConfigurationError("strategy: expected the names of strategies, such as strategy=fedavg,ditto")
    seeds, tuning_seed = seeds_of("tune", own)
    budget = whole_number("tune", "budget", own["budget"], 1)
    add_working_folder()
    lacked = lacked_settings(strategies, overrides)
    plan = Plan(
        strategies=strategies,
        budget=budget,
        seeds=seeds,
        tuning_seed=tuning_seed,
        overrides=[*overrides, *cleared_rate(composed(_of_no_strategy(fixed_overrides(overrides))), overrides)],
        sweeper="optuna" if find_spec("optuna") else "random",
        rate=central_rate(checked_model(strategies, overrides, lacked)),
        folder=Path(own["output"]) if own["output"] else folder_of(overrides, tuning_seed),
        lacked=lacked,
    )
    return plan, whole_number("tune", "jobs", own["jobs"], 1)


def split_arguments(command: str, arguments: Sequence[str], own: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the command's own arguments by name, and the other arguments, which are overrides.

    Raises:
        ConfigurationError: An argument is not of the form KEY=VALUE, its key resembles one of the command's own, or the
            command sets it.
    """
    pairs = [each.partition("=") for each in arguments]
    if wrong := next((each for each, (_, equals, _) in zip(arguments, pairs, strict=True) if not equals), None):
        raise ConfigurationError(f"{wrong}: expected KEY=VALUE; odt-sim {command} --help explains the command")
    for key in (key for key, _, _ in pairs if key.isidentifier() and key not in {*own, *GROUPS}):
        if near := get_close_matches(key, own, 1, NEAR):
            raise ConfigurationError(f"{key}: unknown argument of odt-sim {command}; did you mean {near[0]}?")
    for key in (key.lstrip("+") for key, _, _ in pairs):
        if key in SET_BY_COMMAND:
            raise ConfigurationError(f"{key}: odt-sim {command} sets it; {SET_BY_COMMAND[key]}")
    overrides = [each for each, (key, _, _) in zip(arguments, pairs, strict=True) if key not in own]
    return {key: value for key, _, value in pairs if key in own}, overrides


def whole_number(command: str, name: str, value: str, low: int = 0) -> int:
    """Return the integer value of a command's argument.

    Raises:
        ConfigurationError: The value is no whole number, or too small.
    """
    try:
        return checked_count(name, int(value), low, group=command)
    except ValueError as error:
        raise ConfigurationError(f"{command}.{name}: expected a whole number, found {value!r}") from error


def seeds_of(command: str, given: Mapping[str, str]) -> tuple[list[int], int]:
    """Return the seeds of the report, and the seed of the trials, which must differ from them.

    Raises:
        ConfigurationError: The trials' seed is one of the report's, or an argument is no whole number.
    """
    seeds = [whole_number(command, "seed", each) for each in given["seed"].split(",")]
    tuning_seed = whole_number(command, "tuning_seed", given["tuning_seed"])
    if tuning_seed in seeds:
        raise ConfigurationError(
            f"tuning_seed: expected a seed that no compared run uses, found {tuning_seed}; change it, or seed"
        )
    return seeds, tuning_seed


def fixed_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that all trials of a search share.

    Raises:
        ConfigurationError: A searched override determines the devices' examples.
    """
    own = [each for each in overrides if not each.startswith(OF_THE_SEARCH)]
    check_searched(each.partition("=")[0] for each in own if not is_fixed(each))
    return [each for each in own if is_fixed(each)]


def cleared_rate(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Return the override that clears the model's own learning rate if trials draw one, since setting both is refused.

    Args:
        config: The configuration of all trials.
        overrides: The overrides of the configuration, and those that are searched.
    """
    own = OmegaConf.select(config, "model.optimizer.learning_rate")
    fixed = any(each.startswith("train.learning_rate=") and is_fixed(each) for each in overrides)
    return ["model.optimizer.learning_rate=null"] if isinstance(own, int | float) and not fixed else []


def lacked_settings(strategies: Sequence[str], overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides of settings that a strategy lacks, by strategy; they apply to the other strategies only.

    Raises:
        ConfigurationError: No strategy has a setting.
    """
    shared = _of_no_strategy(overrides)
    given = {each: str(key_of(each)) for each in overrides if each not in shared}
    if any(key.endswith("._target_") for key in given.values()):
        return {}
    fixed = fixed_overrides(shared)
    configs = {strategy: composed([f"strategy={strategy}", *fixed]) for strategy in strategies} if given else {}
    lacked = {
        strategy: [each for each, key in given.items() if not takes(config, key)]
        for strategy, config in configs.items()
    }
    for each in set.intersection(*map(set, lacked.values())) if lacked else ():
        raise ConfigurationError(unknown_key(given[each], known_keys(configs[strategies[-1]], COMPONENTS)))
    return lacked


def _of_no_strategy(overrides: Sequence[str]) -> list[str]:
    return [each for each in overrides if not each.lstrip("+").startswith("strategy.")]


def _search_path(folder: str) -> list[str]:
    """Return the override that adds a folder of the user's options.

    Raises:
        ConfigurationError: There is no such folder.
    """
    if folder and not Path(folder).is_dir():
        raise ConfigurationError(f"config_dir: expected a folder of options, found no folder {folder}; give its path")
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
        own = applied(overrides, lacked or {}, strategy)
        fixed = fixed_overrides(own)
        config = composed([f"strategy={strategy}", *fixed])
        check_keys(config, COMPONENTS)
    found = model(config)
    space, _ = parsed_space([each for each in own if not (is_fixed(each) or each.startswith(OF_THE_SEARCH))])
    complete = composed([f"strategy={strategies[-1]}", *fixed, *first_values(space)])
    checked = in_daemon_thread(lambda: check_data(complete, found, central_rate(found)))
    with suppress(TimeoutError):
        checked.result(PATIENCE)
    return found


def central_rate(model: TrainableModel) -> float:
    """Return the learning rate at the centre of a search."""
    return own_learning_rate(model) or DEFAULT_RATE
