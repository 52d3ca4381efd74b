"""Embedding tables on server processes instead of on the trainers: `remote` of a run (docs/remote.md).

Without torch: settings.py holds the settings, parts.py what a run with servers refuses, planning.py how servers are
planned and reported. hosting.py starts servers (server.py) and trainers (trainer.py, stale.py). client.py is the
trainer's side, over one of three backends (on_sockets.py, on_rpc.py, on_ray.py) that carry calls (calls.py, frames.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.training.seams.predicting import NO_COPIES, RunFacts, SystemLine
from recsmith.training.seams.system import System
from recsmith.training.systems.remote.settings import RunRemote

if TYPE_CHECKING:
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.card import ModelCard
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.seams.system import Hear


class Remote(System):
    """The system that keeps tables on servers."""

    key = "remote"
    settings = RunRemote
    about = "tables on servers beside the trainers (docs/remote.md); none: on the ranks that train"

    def check(self, run: "Run", *, launched: bool) -> None:
        """Refuse settings that servers do not support, and a backend that is not installed."""
        if run.remote is None:
            return
        from recsmith.adapters.topology import device_type
        from recsmith.training.run.refusals import check_together
        from recsmith.training.systems.remote.parts import check_remote, remote_parts

        check_remote(run, launched=launched)
        check_together(remote_parts(run, device_type()))

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """The part that stands for tables on servers, if the run has them."""
        from recsmith.training.systems.remote.parts import TablesOnServers

        return () if run.remote is None else (TablesOnServers(),)

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Forbid copies of tables: each row is on one server."""
        return () if run.remote is None else (NO_COPIES,)

    def run_of_plan(self, run: "Run", ranks: int) -> tuple[Any, int] | None:
        """The run and rank count to plan servers for: together they look up the samples of all trainers."""
        from recsmith.training.systems.remote.planning import run_of_servers

        if run.remote is None:
            return None
        return run_of_servers(run, ranks, run.remote.servers), run.remote.servers

    def change_told_step(self, run: "Run", plan: Plan, ranks: int, step: "JobStep") -> "JobStep":
        """The predicted step with the seconds that trainers wait for servers added."""
        from recsmith.prediction.servers import remote_cost

        if run.remote is None:
            return step
        seconds = remote_cost(plan, run.data.local_batch_size(ranks), ranks, backend=run.remote.backend).seconds
        return replace(step, rows_s=step.rows_s + seconds)

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """The run without servers: its tables are on the ranks that score."""
        return replace(run, remote=None)

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """What servers hold and cost; without servers, what they would have gained in the previous run."""
        from recsmith.training.systems.remote.planning import server_lines

        lines = server_lines(run, facts.plan, facts.ranks, facts.step)
        return tuple(SystemLine(key=self.key, on=run.remote is not None, said=line) for line in lines)

    def launch(self, run: "Run", ranks: int, restarts: int, hear: "Hear") -> Raw | None:
        """Start servers and trainers on this machine, and return the run's result; None without servers."""
        if run.remote is None:
            return None
        from recsmith.training.systems.remote.hosting import train_remote
        from recsmith.training.systems.remote.parts import check_restarts

        check_restarts(restarts)
        return train_remote(run, ranks, hear)

    def join(self, run: "Run", hear: "Hear") -> Raw | None:
        """Train as an additional trainer of the running job, and return the result."""
        from recsmith.training.systems.remote.hosting import join_remote

        return join_remote(run, hear)

    def rank_times(self, job: "TrainingJob", ranks: int) -> Raw:
        """Seconds that a step waits for servers, measured; predicted if the job has no servers."""
        from recsmith.prediction.servers import remote_cost

        served = getattr(job.sharded.rows, "server_s", None)
        cost = remote_cost(job.plan, job.batch_size, ranks).seconds if served is None else served
        return {"servers_s": cost, "served": served is not None}

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """What a step pulled, how long it waited for servers, and which trainers came and went."""
        if job.run.remote is None:
            return {}
        from recsmith.training.systems.remote.planning import brought_line, changes_line, mean_step_line
        from recsmith.training.systems.remote.tables import RemoteRows

        assert isinstance(job.sharded.rows, RemoteRows)
        if not (client := job.sharded.rows.client).counts.steps:
            return {}

        predicted, took = job.progress.told_s, client.step_s or job.progress.step_s
        slower = took / predicted if predicted and took else None
        said = {self.key: brought_line(job.run, job.plan, client.counts, client.trainers, slower)}
        if changed := changes_line(client.joined, client.left, client.lost):
            said["trainers"] = changed
        if client.step_s is None:
            return said
        return {"step": mean_step_line(client.trainers, client.step_s, predicted), **said}

    def at_the_end(self, job: "TrainingJob", times: Raw) -> str | None:
        """What servers would gain if one rank is slow; None otherwise."""
        from recsmith.training.systems.remote.planning import instead_of_waiting

        return instead_of_waiting(job.run, times)


SYSTEM = Remote()
