"""MLflow tracker: a run in an experiment, in a local database or on a server."""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odt_sim._support.system import package
from odt_sim._support.user_code import user_code_errors
from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.trackers.base import (
    Tracker,
    WrittenReport,
    earlier_run_id,
    keep_run_id,
    round_figures,
    summary_figures,
    trained_model,
)

MAX_PARAMETERS = 100
"""Maximum number of parameters that MLflow accepts in one call."""
MAX_PARAMETER_LENGTH = 6000
"""Maximum number of characters that MLflow accepts in a parameter's value."""
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""The environment variable with the number of retries of a request; with MLflow's default, they take four minutes."""


class MLflow(Tracker):
    """Logs the settings as parameters, numbers as metrics by round, and the trained model and the report as artifacts.

    MLflow's global active run is left to the user's own code.
    """

    waits = True

    def __init__(self, tracking_uri: str | None, experiment: str) -> None:
        """Import MLflow.

        Args:
            tracking_uri: The database or the server; None for MLflow's own setting.
            experiment: The experiment's name; it is created if it does not exist.

        Raises:
            ConfigurationError: MLflow is not installed.
        """
        self._library = package("mlflow", "tracker=mlflow: cannot import mlflow", "mlflow")
        self._uri, self._experiment = tracking_uri, experiment

    def on_begin(self, run: RunInfo) -> None:
        """Create the run, or reopen it if it is resumed."""
        earlier = earlier_run_id(run.folder, "mlflow") if run.recorded else None
        self._folder, self._run = run.folder, self._open(run.name, run.folder, earlier)
        settings = {_accepted(key): str(value)[:MAX_PARAMETER_LENGTH] for key, value in run.settings.items()}
        if earlier:
            self._log_changes(settings)
            return
        parameters = [self._library.entities.Param(key, value) for key, value in settings.items()]
        for first in range(0, len(parameters), MAX_PARAMETERS):
            self._client.log_batch(self._run, params=parameters[first : first + MAX_PARAMETERS])

    def on_round(self, record: RoundRecord) -> None:
        """Log the round's numbers, with the round as the step."""
        self._log_metrics(round_figures(record), record.round)

    def on_end(self, summary: Summary | None) -> None:
        """Log the summary's numbers, end the run as finished or failed, and log its trained model."""
        if summary is not None:
            self._log_metrics(summary_figures(summary), summary.rounds)
        self._client.set_terminated(self._run, "FAILED" if summary is None else "FINISHED")
        if summary is not None and (model := trained_model(self._folder)):
            self._client.log_artifact(self._run, model, "model")

    def on_report(self, report: WrittenReport) -> None:
        """Log the report to the run, or to a separate run for a sweep."""
        run = self._open(report.name, report.folder, earlier_run_id(report.folder, "mlflow"))
        try:
            for file in report.files:
                self._client.log_artifact(run, file, "report")
            for figure in report.figures:
                self._client.log_artifact(run, figure, "report/figures")
        finally:
            self._client.set_terminated(run)

    def _open(self, name: str, folder: Path, earlier: str | None) -> str:
        """Create a run, or reopen an earlier one; return its id, which is stored in the folder.

        Raises:
            ConfigurationError: The database or the server cannot be used.
        """
        opening = f"tracker=mlflow: opening a run at {self._uri or 'the tracking URI of MLflow'} failed"
        advice = "check tracker.tracking_uri and whether its server runs"
        failed = user_code_errors(None, opening, ConfigurationError, advice=advice)
        with failed, _few_retries():
            self._client = self._library.MlflowClient(tracking_uri=self._uri)
            if earlier:
                self._client.update_run(earlier, status="RUNNING")
                return earlier
            known = self._client.get_experiment_by_name(self._experiment)
            experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
            tags = {"odt_sim.folder": str(folder.absolute())}
            run_id = str(self._client.create_run(str(experiment), run_name=name, tags=tags).info.run_id)
        keep_run_id(folder, "mlflow", run_id)
        return run_id

    def _log_changes(self, settings: Mapping[str, str]) -> None:
        """Log settings that changed on resuming as tags, because MLflow does not allow changes of parameters."""
        data = self._client.get_run(self._run).data
        known = {**data.params, **data.tags}
        for key, value in settings.items():
            if known.get(key) != value and key != "run.resume":
                self._client.set_tag(self._run, key, value)

    def _log_metrics(self, values: Mapping[str, float], step: int) -> None:
        metric, now = self._library.entities.Metric, int(1000 * time.time())
        self._client.log_batch(
            self._run, metrics=[metric(_accepted(key), value, now, step) for key, value in values.items()]
        )


def _accepted(key: str) -> str:
    """Return a key with `_` for each character that MLflow refuses, such as the brackets in a device class's name."""
    return re.sub(r"[^\w./: -]", "_", key, flags=re.ASCII)


@contextmanager
def _few_retries() -> Iterator[None]:
    """Make requests fail within seconds, unless the user has set the number of retries."""
    given = RETRIES in os.environ
    os.environ.setdefault(RETRIES, "1")
    try:
        yield
    finally:
        if not given:
            del os.environ[RETRIES]
