"""Results of runs as pandas frames."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from odt_sim._support.system import package
from odt_sim._support.text import counted
from odt_sim.declarations import flatten
from odt_sim.errors import ConfigurationError
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.run import Run, find_runs, load_run, one_run

if TYPE_CHECKING:
    from pandas import DataFrame


class Results:
    """The records of runs as frames; all frames begin with the columns `run`, `strategy`, `seed`, `overrides`.

    `run` is the run's folder, as found below the given one. `seed` is missing for incomplete runs that were started
    from Python. `overrides` are the Hydra overrides without strategy and seed, joined by spaces.

    Example:
        results = odt_sim.Results.load("multirun/2026-11-22/12-00-00")
        results.devices.groupby("strategy")["accuracy"].describe()

    Attributes:
        runs: The folders of the runs.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        """Wrap runs that were read from disk.

        Raises:
            ConfigurationError: The argument is not a list of runs; `load` reads folders.
        """
        self._runs = tuple(runs) if isinstance(runs, Iterable) else (runs,)
        if not all(isinstance(run, Run) for run in self._runs):
            raise ConfigurationError("Results: expected loaded runs; load folders with Results.load(folder)")
        self.runs = tuple(run.path for run in self._runs)

    @classmethod
    def load(cls, *folders: str | os.PathLike[str]) -> Self:
        """Read all runs in or below some folders: a run's folder, a sweep's, or several of them.

        Raises:
            ConfigurationError: An argument is not a path.
            CheckpointError: A folder is missing or contains no run, or a run's records are damaged.
        """
        if wrong := [folder for folder in folders if not isinstance(folder, str | os.PathLike)]:
            raise ConfigurationError(
                f"Results.load: expected the paths of folders, found a {type(wrong[0]).__name__}; pass each path as "
                "a separate argument: Results.load(*folders)"
            )
        return cls(load_run(path) for path in find_runs([Path(folder) for folder in folders]))

    @cached_property
    def rounds(self) -> "DataFrame":
        """A row per round and run, with the columns of `rounds.jsonl`; includes runs that are not complete.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        return self._frame(lambda run: run.rounds)

    @cached_property
    def devices(self) -> "DataFrame":
        """A row per device and complete run, with the columns of `devices.jsonl`.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        return self._frame(lambda run: run.devices)

    @cached_property
    def summaries(self) -> "DataFrame":
        """A row per complete run, with the values of `summary.json` by dotted name, such as `metrics.accuracy.worst`.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        return self._frame(lambda run: [flatten(run.summary)] if run.summary else [])

    def comparison(
        self,
        *,
        best: bool = False,
        against: str | None = None,
        target: float | None = None,
        metric: str | None = None,
    ) -> "DataFrame":
        """Return the comparison of the complete runs: a row per configuration, with its seeds merged.

        Args:
            best: Keep only the best configuration of each strategy on validation examples.
            against: The reference of the paired columns: a strategy or a label. By default `fedavg` if there is one.
            target: The value of the metric up to which rounds are counted; by default `run.target` of the runs.
            metric: The metric to compare by; by default the first metric of the runs, which always chooses rounds and
                configurations.

        Returns:
            `label`, `strategy`, `seeds`, `chosen`, `pruned`, a column for each number in the report such as
            `weighted_mean`, with several seeds also its `weighted_mean_std`, and the comparison by device as
            `paired_difference`, `paired_low`, `paired_high`, `paired_p_holm` and so on.

        Raises:
            ConfigurationError: pandas is not installed, or an option does not fit the runs.
        """
        from odt_sim.report.comparison import compare_runs
        from odt_sim.report.records import comparison_records

        compared = compare_runs(self._runs, best=best, against=against, target=target, metric=metric)
        return _data_frame(comparison_records(compared))

    def device(self, id: int) -> "DeviceResult":
        """Return one device of the only run.

        Raises:
            ConfigurationError: There are several runs.
        """
        return DeviceResult(one_run(self.runs, "odt_sim.Results"), id)

    def model(self) -> TrainableModel:
        """Return the global model of the only run, with the server's weights after the round that validates best.

        Raises:
            ConfigurationError: There are several runs.
            CheckpointError: The run is not complete.
            StrategyError: The server does not have all weights of the model, because some stay on the devices.
        """
        from odt_sim.cli.hydra.build import saved_model
        from odt_sim.deploy.models import global_file

        folder = one_run(self.runs, "odt_sim.Results")
        return saved_model(folder, global_file(folder))

    def _frame(self, records: Callable[[Run], Iterable[Mapping[str, Any]]]) -> "DataFrame":
        return _data_frame([{**_common(run), **record} for run in self._runs for record in records(run)])

    def __repr__(self) -> str:
        return f"Results of {counted(len(self.runs), 'run')}"


@dataclass(frozen=True)
class DeviceResult:
    """A device of a run.

    Attributes:
        run: The run's folder.
        id: The device's id.
    """

    run: Path
    id: int

    def model(self) -> TrainableModel:
        """Return a trainable model with the device's deployed weights as initial weights.

        They are the weights that were evaluated for the device's line in `devices.jsonl`. The run's data is read again.
        Unseen devices have a model, too.

        Raises:
            ConfigurationError: The fleet has no such device, or the run was started from Python; use
                `Simulation.deployed` then.
            CheckpointError: The run is not complete, or its checkpoint is missing or damaged.
            StrategyError: The strategy deploys more than a model's weights.
        """
        from odt_sim.cli.hydra.build import saved_simulation
        from odt_sim.deploy.models import device_model

        return device_model(saved_simulation(self.run), self.id)


def _data_frame(records: list[dict[str, Any]]) -> "DataFrame":
    return package("pandas", "odt_sim.Results: needs pandas", "results").DataFrame(records)


def _common(run: Run) -> dict[str, Any]:
    seed = run.summary.seed if run.summary else run.config.get("seed")
    others = (text for text in run.overrides if text.partition("=")[0] not in ("strategy", "seed"))
    return {"run": str(run.path), "strategy": run.name, "seed": seed, "overrides": " ".join(others)}
