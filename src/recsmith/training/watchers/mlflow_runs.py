"""MLflow: a run whose metrics are the numbers of log.jsonl by step, and whose parameters are the run's keys."""

import os
import re
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from recsmith._install import MLFLOW
from recsmith.training.job.job import TrainingJob
from recsmith.training.watchers.hearing import HearingWatcher, settings_of

FOLDER = "mlruns"  # of the run's output
AT_ONCE = 100  # parameters of a call; servers take so many
NAMES = re.compile(r"[^\w\-. :/]")  # what names of metrics and parameters cannot have


class MlflowRuns(HearingWatcher):
    """Writes what log.jsonl says into a run of MLflow; a job that goes on writes into the same run.

    uri: of the tracking server or store; none: MLFLOW_TRACKING_URI, or the folder mlruns of the run's output.
    experiment: its name there. run_name: none: the output folder of the run.
    """

    package, install = "mlflow", MLFLOW

    def __init__(self, *, uri: str | None = None, experiment: str = "recsmith", run_name: str | None = None) -> None:
        super().__init__()
        self.uri, self.experiment, self.run_name = uri, experiment, run_name
        self._client: Any = None

    def begin(self, job: TrainingJob) -> None:
        """Open the run in its experiment, which is made where it is new."""
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or (job.output.resolve() / FOLDER).as_uri()
        if uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # releases from 3.7 on ask for it
        mlflow: Any = import_module("mlflow")
        self._client = client = mlflow.MlflowClient(tracking_uri=uri)
        if self.run_id is not None:
            client.update_run(self.run_id, status="RUNNING")
            return
        found = client.get_experiment_by_name(self.experiment)
        number = client.create_experiment(self.experiment) if found is None else found.experiment_id
        self.run_id = client.create_run(number, run_name=self.run_name or str(job.output)).info.run_id
        parameter = mlflow.entities.Param
        settings = [parameter(_name(key), value) for key, value in settings_of(job.run).items()]
        for first in range(0, len(settings), AT_ONCE):
            client.log_batch(self.run_id, params=settings[first : first + AT_ONCE])

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write metrics of a step."""
        metric, now = import_module("mlflow").entities.Metric, int(time.time() * 1000)
        self._client.log_batch(self.run_id, [metric(_name(name), value, now, step) for name, value in numbers.items()])

    def end(self, *, failed: bool) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self.run_id, status="FAILED" if failed else "FINISHED")


def _name(name: str) -> str:
    """A name that MLflow takes: ndcg@10 is ndcg_at_10, as its own scores are."""
    return NAMES.sub("_", name.replace("@", "_at_"))
