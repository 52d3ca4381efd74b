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

FOLDER = "mlruns"  # folder in the run's output
AT_ONCE = 100  # most parameters that servers accept in one call
NAMES = re.compile(r"[^\w\-. :/]")  # characters that names of metrics and parameters cannot have


class MlflowRuns(HearingWatcher):
    """Writes what log.jsonl says into a run of MLflow; a resumed job writes into the same run.

    uri: tracking server or store; none: MLFLOW_TRACKING_URI, or the folder mlruns of the run's output. experiment: name
    of the experiment. run_name: name of the run; none: its output folder.
    """

    package, install = "mlflow", MLFLOW

    def __init__(self, *, uri: str | None = None, experiment: str = "recsmith", run_name: str | None = None) -> None:
        super().__init__()
        self.uri, self.experiment, self.run_name = uri, experiment, run_name
        self._client: Any = None

    def begin(self, job: TrainingJob) -> None:
        """Open the run in its experiment, which is created if it does not exist."""
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
        """Write the metrics of a step."""
        metric, now = import_module("mlflow").entities.Metric, int(time.time() * 1000)
        self._client.log_batch(self.run_id, [metric(_name(name), value, now, step) for name, value in numbers.items()])

    def end(self, *, failed: bool) -> None:
        """Report how the run ended."""
        self._client.set_terminated(self.run_id, status="FAILED" if failed else "FINISHED")


def _name(name: str) -> str:
    """A name that MLflow accepts: ndcg@10 becomes ndcg_at_10, as in MLflow's own scores."""
    return NAMES.sub("_", name.replace("@", "_at_"))
