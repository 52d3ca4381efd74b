"""A trainer of a job whose tables are on servers: the planned job's loop, with rows and steps of its own kind."""

import os
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from recsmith.errors import RecSmithError
from recsmith.files import Raw
from recsmith.training.job.agreement import Ending, heeding_sigterm
from recsmith.training.job.job import TrainingJob, kept_progress
from recsmith.training.job.log import tell_note, tell_pid
from recsmith.training.job.starting import batches_from, settled
from recsmith.training.loop import train_prepared
from recsmith.training.rank import OneModel
from recsmith.training.run import Run, run_of_job
from recsmith.training.systems.remote.calls import Departed, Regroup, ServerPlace, connected
from recsmith.training.systems.remote.client import TableClient
from recsmith.training.systems.remote.group import TrainerGroup
from recsmith.training.systems.remote.model import Batches, flat_tensors, never_anew, trainer_job
from recsmith.training.systems.remote.stale import train_stale
from recsmith.training.watchers import Watchers
from recsmith.units import counted


def train_on_trainer(run: Raw, place: Raw, meet: str, name: str, *, joins: bool = False) -> Raw:
    """Train a run as one of its trainers; returns the result (JSON data), or why this trainer was `left_out`.

    Args:
        run: the run (JSON data).
        place: of the servers (JSON data of a ServerPlace).
        meet: 'host:port' of the store where process groups form.
        name: of this trainer.
        joins: whether this trainer joined the running job; a signal then ends it alone.
    """
    made, where = run_of_job(run), ServerPlace(**place)
    assert made.remote is not None
    calls = connected(where, name)
    client = TableClient(calls)
    calls.greet()
    with client.living(), heeding_sigterm() as ending, Watchers(made.watched) as watchers:
        of_all = ending
        if joins:
            client.leaving, of_all = lambda: ending.asked, Ending()
        try:
            if made.remote.staleness:
                tell_pid()
                result = train_stale(made, client, int(os.environ["RANK"]), watchers, of_all)
            else:
                result = _train_together(made, client, meet, watchers, of_all)
            client.ask("leave")
        except Departed:
            return {"left_out": _depart(client)}
        except (RecSmithError, RuntimeError):
            if (why := client.left_out()) is not None:
                return {"left_out": why}
            raise
        result["remote"] |= {"lost": client.lost, "joined": client.joined, "left": client.left}
        return result


def _depart(client: TableClient) -> str:
    """Leave the job, which goes on; returns what this trainer has done, for people."""
    client.ask("depart")
    if dist.is_initialized():
        dist.destroy_process_group()  # ends the wait of trainers that wait for this one
    trained = counted(client.counts.steps, "batch", "batches")
    return f"a signal ended this trainer after it had trained {trained}; the job of the others goes on"


def _train_together(run: Run, client: TableClient, meet: str, watchers: Watchers, ending: Ending) -> Raw:
    """Train in step with the other trainers, in new generations as they change, and return the result."""
    job: TrainingJob | None = None
    while True:
        before, place = client.generation, client.gather()
        if "over" in place:  # this trainer waited until the others were done
            return {"step": place["over"], "remote": asdict(client.counts)}
        client.group = TrainerGroup()
        try:
            client.group.join(
                client.calls.place, meet, generation=client.generation, rank=client.rank, world=client.world
            )
            tell_pid()
            if place["waiting"]:
                tell_note(f"{client.world} trainers share a step, and {place['waiting']} wait until they are needed")
            if client.generation > 1:
                _hand_over(client, job if client.generation == before + 1 else None)
            job, batches = prepared_trainer(run, client)
            client.log_changes(job.log, job.progress.step)
            result = train_prepared(OneModel(job), batches, watchers, ending)
            break
        except Departed:
            if job is not None:
                with suppress(Regroup):
                    job.sharded.rows.flush()
            raise
        except (Regroup, RuntimeError) as error:
            _after(error, client, job)
    never_anew(result)
    assert isinstance(result, dict)
    counts = asdict(client.counts)
    job.log.write("remote", {"step": job.progress.step, **counts})
    with suppress(RuntimeError):  # if a trainer died after the last step
        dist.barrier()
    if client.rank:  # rank 0 reports the job's gains, because it knows the predictions
        result.pop("brought", None)
    return {**result, "remote": counts}


def _after(error: Exception, client: TableClient, job: TrainingJob | None) -> None:
    """Leave the process group after a failed step; raises the error again if the trainers have not changed."""
    if dist.is_initialized():
        dist.destroy_process_group()  # ends the wait of trainers that wait for this one
    if job is not None:
        with suppress(Regroup):
            job.sharded.rows.flush()  # a step that all trainers have pushed counts
    if not isinstance(error, Regroup) and not client.changed():
        raise error


def _hand_over(client: TableClient, job: TrainingJob | None) -> None:
    """Send trainer 0's dense layers and progress to the servers, from which all continue; rank 0 is no newcomer."""
    if client.rank == 0 and job is not None:
        rows: Any = job.sharded.rows
        progress = {**kept_progress(job), "step": client.clock, "position": rows.position, "ranks": client.world}
        client.to_all("keep", flat_tensors(job.sharded), progress)
    dist.barrier()


def prepared_trainer(run: Run, client: TableClient) -> tuple[TrainingJob, Batches]:
    """The job of this trainer at the step that the servers have reached, and its next batches."""
    job, batches = trainer_job(
        run, client, client.rank, client.world,
        lambda parts, sharded, progress, _: _until_leaving(client, settled(sharded, batches_from(parts, progress))),
    )  # fmt: skip
    job.sharded.rows.position = job.progress.position  # type: ignore[attr-defined]
    return job, batches


def _until_leaving(client: TableClient, batches: Batches) -> Batches:
    """Yield the batches; raises Departed once this trainer is to leave."""
    with closing(batches):
        for batch in batches:
            if client.leaving():
                raise Departed
            yield batch
