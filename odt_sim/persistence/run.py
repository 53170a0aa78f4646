"""Read runs from disk, with the configuration that Hydra stored with them."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odt_sim._support.text import few
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.metrics.names import is_metric, know
from odt_sim.metrics.tasks import TASK_METRICS
from odt_sim.persistence.records import DeviceRecord, RoundRecord
from odt_sim.persistence.run_folder import SEARCH, TASK, TUNED, TUNING, RunFolder, config_folders, is_run_folder
from odt_sim.persistence.summary import Summary


@dataclass(frozen=True)
class Run:
    """The records of one run.

    Attributes:
        path: The run's folder.
        rounds: The lines of `rounds.jsonl`.
        devices: The lines of `devices.jsonl`.
        summary: The content of `summary.json`, or None if the run is not complete.
        error: The reason why the run ended early, in one line, or None.
        overrides: The run's Hydra overrides, such as `strategy=fedper`; empty for a run started from Python.
        config: The run's configuration; empty for a run started from Python.
        choices: The chosen option of each Hydra group; empty for a run started from Python.
        config_folders: The arguments that name folders of further options: `--config-dir=...`, `hydra.searchpath=...`.
        code: The digests of the code of the user's `strategy` and `aggregator`, and the version of `python`; may be
            empty.
        compared_by: The metric to compare by; None for the one that chose the reported round.
    """

    path: Path
    rounds: tuple[RoundRecord, ...]
    devices: tuple[DeviceRecord, ...]
    summary: Summary | None
    error: str | None
    overrides: tuple[str, ...]
    config: Mapping[str, Any]
    choices: Mapping[str, Any]
    config_folders: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    compared_by: str | None = None

    @property
    def complete(self) -> Summary:
        """The summary of a complete run."""
        assert self.summary is not None, f"{self.path}: is not complete"
        return self.summary

    @property
    def pruned(self) -> bool:
        """Whether the pruner of a search ended the run; False if it ended for another reason, such as a budget."""
        return self.summary is not None and bool(self.summary.pruned)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of a complete run; strategies are compared by the first."""
        first = () if self.compared_by is None else (self.compared_by,)
        return (*first, *(metric for metric in self._recorded if metric not in first))

    @property
    def chosen_by(self) -> str:
        """The metric of a complete run that chose the reported round: the first one recorded."""
        return self._recorded[0]

    @property
    def _recorded(self) -> tuple[str, ...]:
        return tuple(self.complete.metrics) or TASK_METRICS.get(self.complete.task, ())

    @property
    def settings(self) -> Mapping[str, str]:
        """All settings that affect the result, except for the seed; empty if the run is not complete."""
        return (self.summary.settings if self.summary else None) or {}

    @property
    def overridden(self) -> dict[str, str]:
        """The value of each overridden key."""
        pairs = (override.lstrip("+~").partition("=") for override in self.overrides)
        return {key: value for key, _, value in pairs}

    @property
    def name(self) -> str:
        """The strategy's recorded name; for a run that ended early, the configured name or the folder's name."""
        recorded = self.summary.strategy if self.summary else None
        own = self.overridden.get("strategy._target_", "").rpartition(".")[2]
        configured = self.overridden.get("strategy") or self.choices.get("strategy")
        return str(recorded or own or configured or self.path.name)


def load_run(path: Path) -> Run:
    """Read a run from disk; without `summary.json`, it counts as a run that ended early.

    Raises:
        CheckpointError: A file is damaged.
    """
    folder = RunFolder(path)
    summary, failure = folder.summary(), folder.failure() or {}
    unfinished = None if summary else "ended early: summary.json is missing; run it again, or resume it"
    config = _read_yaml(path / ".hydra" / "config.yaml") or {}
    names = (str(path).rpartition(".")[2] for path in config.get("metrics") or ())
    configured = {name: True for name in names if not is_metric(name)}  # the summary says whether larger is better
    know(summary.own_metrics or {} if summary else configured)
    hydra = (_read_yaml(path / ".hydra" / "hydra.yaml") or {}).get("hydra", {})
    return Run(
        path=path,
        rounds=tuple(folder.rounds()),
        devices=tuple(folder.devices()) if summary else (),
        summary=summary,
        error=failure.get("error", unfinished),
        overrides=tuple(_read_yaml(path / ".hydra" / "overrides.yaml") or failure.get("overrides", ())),
        config=config,
        choices=hydra.get("runtime", {}).get("choices", {}),
        config_folders=config_folders(hydra),
        code=folder.code(),
    )


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders at or below some folders, each once, in natural order (2 before 10).

    Of a tuning, these are the runs of the winners: trials have another seed, and their figures chose the winners.

    Raises:
        CheckpointError: A folder is missing or contains no run.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        below = sorted(_runs_below(folder, is_run_folder, trials=False), key=_natural_order)
        if not below:
            raise CheckpointError(f"{folder}: no run found there; give a run's folder, or one that contains runs")
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def find_started_runs(folder: Path) -> list[Path]:
    """Return the run folders at or below a folder in natural order, including those without records yet."""

    def is_started(path: Path) -> bool:
        return is_run_folder(path) or (path / ".hydra" / "config.yaml").is_file()

    return sorted(_runs_below(folder, is_started, trials=True), key=_natural_order)


def one_run(found: Sequence[Path], where: object) -> Path:
    """Return the only one of some runs.

    Args:
        found: The runs' folders.
        where: The place where they were found, for errors.

    Raises:
        ConfigurationError: There are several runs.
    """
    if len(found) > 1:
        raise ConfigurationError(f"{where}: expected one run, found {len(found)}; choose one of {few(found, 5)}")
    return found[0]


def _runs_below(folder: Path, is_run: Callable[[Path], bool], trials: bool) -> Iterator[Path]:
    """Yield the runs below a folder, including those behind links, each folder once.

    Args:
        folder: The folder.
        is_run: Returns whether a folder is a run's.
        trials: Whether to yield also the trials of a tuning with winners.
    """
    walked = set[str]()
    for parent, below, _ in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in walked:
            below.clear()  # a link to a folder above, or a second one
            continue
        walked.add(real)
        if is_run(Path(parent)):
            below.clear()  # folders inside a run contain no runs
            yield Path(parent)
        elif not trials and {SEARCH, TUNED} <= {*below} and (Path(parent) / TASK).is_file():
            below.remove(SEARCH)
        elif not trials and Path(parent).name == TUNED:
            below[:] = _without_former_winners(below, Path(parent).parent / TUNING)


def _without_former_winners(names: Sequence[str], tuning: Path) -> list[str]:
    """Return the names of the winners' folders, without those of trials that lost to one of a larger budget."""
    try:
        chosen = {
            won["strategy"]: f"{won['strategy']}-trial-{won['trial']}"
            for won in json.loads(tuning.read_bytes())["winners"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return list(names)  # no tuning, or an interrupted one
    return [name for name in names if chosen.get(name.rpartition("-trial-")[0], name) == name]


def _natural_order(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _read_yaml(path: Path) -> Any:
    """Return a YAML file's content with unresolved interpolations; None without a file."""
    from omegaconf import OmegaConf
    from yaml import YAMLError  # type: ignore[import-untyped]

    if not path.exists():
        return None
    try:
        return OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (OSError, YAMLError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({type(error).__name__}); run again, or remove it") from error
