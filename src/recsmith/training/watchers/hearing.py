"""Watchers that copy log.jsonl to an experiment tracker: one tracked run for one job and its restarts."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from recsmith.errors import MissingExtra
from recsmith.files import Raw
from recsmith.scoring.scores import by_label
from recsmith.training.job.job import TrainingJob
from recsmith.training.run import Run, run_to_raw
from recsmith.training.watchers.protocol import Seen, SeenLine, Watcher, Wish

LONGEST = 500  # longest text of a setting, in characters


class HearingWatcher(Watcher):
    """Receives lines of the log on rank 0. run_id: id of the tracked run, which checkpoints keep."""

    package: str
    install: str

    def __init__(self) -> None:
        self.run_id: str | None = None
        self._begun = False

    @classmethod
    def check_run(cls, run: Run) -> None:
        """MissingExtra if the tracker's package is not installed."""
        del run
        if find_spec(cls.package) is None:
            install = cls.install
            raise MissingExtra(f"watcher {cls.package} needs its package: {install}")

    def look(self, seen: Seen) -> Wish | None:
        """Nothing: the lines of the log are enough."""
        return None

    def hear(self, line: SeenLine) -> None:
        """Write the numbers of a line if it has a step."""
        if "step" not in line.values:
            return
        if not self._begun:
            self._begun = True
            self.begin(line.job)
        self.write(int(line.values["step"]), numbers_of(line.event, line.values))

    def begin(self, job: TrainingJob) -> None:
        """Open the tracked run `run_id`, or a new one if there is none."""
        raise NotImplementedError

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        raise NotImplementedError

    def end(self, *, failed: bool) -> None:
        """Close the tracked run."""
        raise NotImplementedError

    def to_raw(self) -> Raw | None:
        """The id of the tracked run."""
        return None if self.run_id is None else {"run_id": self.run_id}

    def from_raw(self, raw: Raw) -> None:
        """Continue with that tracked run."""
        self.run_id = raw["run_id"]

    def close(self, error: BaseException | None) -> None:
        """Close the tracked run when the job is over."""
        if self._begun and self.run_id is not None:
            self.end(failed=error is not None)


def numbers_of(event: str, values: Raw) -> dict[str, float]:
    """The numbers of a line under the names that TensorBoard uses, such as train/logloss."""
    numbers = {name: value for name, value in by_label(values).items() if name != "step"}
    kept = {name: value for name, value in numbers.items() if isinstance(value, int | float) and value is not True}
    return {f"{event}/{name}": float(value) for name, value in kept.items() if value is not False}


def settings_of(run: Run) -> dict[str, str]:
    """All keys of a run with their values, by path, such as optimizers.sparse.name; lists as JSON."""
    return dict(_flat("", run_to_raw(run)))


def _flat(path: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        items = ((f"{path}.{key}" if path else str(key), each) for key, each in value.items())  # pyright: ignore
        return [found for key, each in items for found in _flat(key, each)]
    text = value if isinstance(value, str) else json.dumps(value)
    return [(path, text[:LONGEST])]
