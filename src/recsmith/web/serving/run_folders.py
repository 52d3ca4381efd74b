"""Folders of training runs, read while they train: log.jsonl so far, and the plan. Nothing is written to them."""

import os
import threading
from collections import OrderedDict
from pathlib import Path

from recsmith.errors import RecSmithError
from recsmith.jobs.log_lines import LOG
from recsmith.plans import Plan, load_plan
from recsmith.web.serving import answers, folder_files
from recsmith.web.serving.run_log import LogSoFar
from recsmith.web.serving.settings import Refused

RUN, PLAN, CARD = "run.json", "plan.json", "model/card.json"
MOST_ALARMS = 200  # newest alarms that are sent
MOST_RUNS = 100  # run folders of a folder that are shown
MOST_PLANS = 20  # plans kept in memory


def is_run(path: Path) -> bool:
    """Whether a folder is of a training run: it has a run file and a log."""
    return (path / RUN).is_file() and (path / LOG).is_file()


class RunFolders:
    """The runs that a server shows: named folders, and run folders inside its folder of plans."""

    def __init__(self, named: tuple[str, ...], folder: str | None) -> None:
        self.named, self.folder = tuple(map(Path, named)), None if folder is None else Path(folder)
        self._logs: dict[Path, LogSoFar] = {}
        self._plans: OrderedDict[Path, tuple[object, Plan]] = OrderedDict()
        self._lock = threading.Lock()

    def found(self) -> dict[str, Path]:
        """Run folders by their ids in addresses."""
        found: dict[str, Path] = {}
        for path in (*self.named, *self._inside()):
            key = folder_files.key_of(path.name or "run")
            number = 2
            while key in found and found[key] != path:
                key, number = f"{folder_files.key_of(path.name or 'run')}_{number}", number + 1
            found[key] = path
        return found

    def summaries(self) -> tuple[answers.RunSummary, ...]:
        """Summaries of all runs."""
        return tuple(self._summary(key, path) for key, path in self.found().items())

    def view(self, key: str) -> answers.RunView:
        """A training run in detail; Refused (404) if there is none."""
        path = self.found().get(key)
        if path is None:
            raise Refused(404, f"no run '{key[:60]}' is shown here; its folder has moved, or has no {RUN} and {LOG}")
        with self._lock:
            log = self._log(path)
            plan, trouble = self._plan_of(path)
            return answers.RunView(
                summary=self._told(key, path, log), plan=plan, trouble=trouble,
                predicted_s=log.predicted_s, measured=log.measured(),
                curves=tuple(log.curves()), alarms=tuple(log.alarms[-MOST_ALARMS:]), damaged=log.damaged,
                more=log.has_more,
            )  # fmt: skip

    def _inside(self) -> list[Path]:
        if self.folder is None:
            return []
        try:
            with os.scandir(self.folder) as entries:
                names = sorted(each.name for each in entries if not each.name.startswith(".") and each.is_dir())
        except OSError:
            return []
        return [self.folder / name for name in names if is_run(self.folder / name)][:MOST_RUNS]

    def _summary(self, key: str, path: Path) -> answers.RunSummary:
        with self._lock:
            return self._told(key, path, self._log(path))

    def _log(self, path: Path) -> LogSoFar:
        log = self._logs.setdefault(path, LogSoFar(path / LOG))
        log.read_on()
        return log

    def _told(self, key: str, path: Path, log: LogSoFar) -> answers.RunSummary:
        return answers.RunSummary(
            id=key, name=path.name, folder=str(path), step=log.step, ended=(path / CARD).is_file(), written=log.written
        )

    def _plan_of(self, path: Path) -> tuple[answers.RunPlan | None, str]:
        """The plan of a run, or None and why there is none to show."""
        file = path / PLAN
        sign = folder_files.signature(file)
        if sign is None:
            return None, f"it has no {PLAN}"
        known = self._plans.get(file)
        if known is None or known[0] != sign:
            try:
                known = (sign, load_plan(str(file)))
            except (RecSmithError, OSError) as error:
                return None, str(error)
            self._plans[file] = known
            while len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        plan = known[1]
        return answers.RunPlan(
            digest=plan.digest, cluster=plan.cluster.describe(), tables=len(plan.placements),
            devices=plan.cluster.world_size, batch_size=plan.workload.batch_size, planner=plan.planner,
            cost_model=plan.cost_model, step_s=plan.cost.step_s, bound_s=plan.bound.of_step(plan.cost), gap=plan.gap,
            cost=plan.cost,
        ), ""  # fmt: skip
