"""Plans for tables on servers, and the lines that report on them before and after a job; without torch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.errors import UsageError
from recsmith.files import Raw
from recsmith.jobs.machine import is_loopback
from recsmith.plans import Plan
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.servers import remote_cost, remote_lines, slow_trainer_of
from recsmith.training.results.watched import slow_trainer_of_run
from recsmith.training.run import Run
from recsmith.training.systems.remote.parts import remote_refusal
from recsmith.units import counted, format_size, format_time

PLACE = "remote.json"  # file in the folder of a run while its servers run
AS_TOLD = 1.5  # a step that took longer than this many times the prediction says nothing about embeddings
# settings in which a trainer that joins may differ from the job
OWN = ("output", "ranks", "plan", "data.feed", "data.engine", "data.ray_address")


def server_lines(run: Run, plan: Plan, trainers: int, step: JobStep | None) -> list[str]:
    """Lines on what servers hold and cost, and what they would have gained in the previous run."""
    stale = run.remote is not None and run.remote.staleness > 0
    slow = None if stale else slow_trainer_of_run(run.output)
    before = [] if slow is None else [f"in the run before, {slow}"]
    if run.remote is None:
        return before
    check_servers(plan)
    embeddings = plan.cost.step_s
    whole = embeddings if step is None else step.step_s
    batch = run.data.local_batch_size(trainers)
    backend = run.remote.backend
    lines = remote_lines(plan, batch, trainers, embeddings_s=embeddings, step_s=whole, backend=backend)
    more = [stale_line(run.remote.staleness, trainers)] if stale else shares_line(run, trainers)
    return [*listening_line(run), *lines, *more, *before]


def brought_line(run: Run, plan: Plan, counts: Any, trainers: int, slower: float | None) -> str:
    """A line on what a step of this trainer moved, how long it waited for servers, and whether they paid.

    counts: this trainer's RemoteCounts. slower: seconds of the step over the predicted seconds; None if unknown.
    """
    assert run.remote is not None
    cost = remote_cost(plan, run.data.local_batch_size(trainers), trainers, backend=run.remote.backend)
    waited, planned = counts.server_s / counts.steps, plan.cost.step_s
    more = f"servers cost a step {format_time(waited - planned)} more, and did not pay"
    if run.remote.staleness:
        more += " unless one trainer is slow"
    paid = ": " + (more if waited > planned else f"servers paid by {format_time(planned - waited)} a step")
    if slower is not None and slower > AS_TOLD:
        paid = f"; a step took {slower:.1f} times what was predicted, so whether servers paid off is not known"
    return (
        f"remote: a step pulled {counts.rows / counts.steps:,.0f} rows, sent "
        f"{format_size(round(counts.sent_bytes / counts.steps))}, received "
        f"{format_size(round(counts.received_bytes / counts.steps))}, and waited {format_time(waited)} for servers; "
        f"{format_time(cost.seconds)} were predicted. The planned job waits for {format_time(planned)} of embeddings "
        f"in their place, predicted{paid}"
    )


def changes_line(joined: Sequence[str], left: Sequence[str], lost: Sequence[str]) -> str | None:
    """A line on how many trainers came and went while the job ran; None if none did."""
    kinds = {"joined": joined, "left when asked to end": left, "lost": lost}
    changes = [f"{len(names)} {how}" for how, names in kinds.items() if names]
    return f"trainers while the job ran: {', '.join(changes)}" if changes else None


def check_same_run(job: Raw, mine: Raw, output: str) -> None:
    """Raise UsageError if the run of a trainer that joins differs from the job's. job, mine: their plain data."""
    there, here = dict(_settings(job)), dict(_settings(mine))
    other = [key for key in dict.fromkeys((*there, *here)) if there.get(key) != here.get(key) and key not in OWN]
    if other:
        differences = ", ".join(
            f"{key} ({there.get(key, 'default')} there, {here.get(key, 'default')} here)" for key in other
        )
        raise UsageError(
            f"the job that runs in '{output}' has other settings than this run: {differences}; join it with the run "
            "and the --set options that it was started with"
        )


def _settings(raw: Raw, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def mean_step_line(trainers: int, took_s: float, told_s: float | None) -> str:
    """A line on the seconds of a step with a staleness: one batch for each trainer that the job began with."""
    predicted = "" if told_s is None else f"; {format_time(told_s)} were predicted"
    batches = counted(trainers, "batch", "batches")
    return f"a step of all trainers ({batches}) took {format_time(took_s)} in the mean{predicted}"


def stale_line(staleness: int, trainers: int) -> str:
    """A line that explains what a staleness means for a job."""
    behind = counted(staleness * trainers, "batch", "batches")
    return (
        f"remote.staleness {staleness}: trainers wait for nobody, and each takes the next batch when it is done; rows "
        f"may lack the gradients of up to {counted(staleness, 'step')} ({behind} of {counted(trainers, 'trainer')}), "
        "so losses are not those of a planned job; the step is predicted as without a staleness"
    )


def instead_of_waiting(run: Run, times: Raw) -> str | None:
    """A line on what servers would gain if one rank is slow, and why the run cannot have them; None otherwise."""
    slow: Any = slow_trainer_of(times)
    if slow is None:
        return None
    refused = None if slow.served or slow.gain() <= 1 else remote_refusal(run, slow.staleness)
    return f"{slow}" + (f"; this run cannot: {refused}" if refused else "")


def check_servers(plan: Plan) -> None:
    """Raise UsageError if a server would hold no shard. plan: for as many ranks as there are servers."""
    shards = plan.shards()
    idle = plan.cluster.world_size - len({each.rank for each in shards})
    if idle:
        raise UsageError(
            f"remote.servers is {plan.cluster.world_size}, and the plan has {len(shards)} shards, so that {idle} of "
            f"them would hold none; give at most {plan.cluster.world_size - idle}, or a plan that splits tables further"
        )


def listening_line(run: Run) -> list[str]:
    """A line on where the servers listen, if other machines can reach it; none otherwise."""
    remote = run.remote
    if remote is None or remote.address is None or remote.backend == "ray":
        return []
    host, _, port = remote.address.rpartition(":")
    if is_loopback(host):
        return []
    if remote.backend == "rpc":
        return [f"servers meet at {remote.address}, which other machines reach: its store asks nobody for a password"]
    ports = f"port {port}" if remote.servers == 1 else f"ports {port} to {int(port) + remote.servers - 1}"
    return [
        f"servers listen at {host}, {ports}, which other machines reach: they answer whoever has the key of the job "
        f"(in '{remote_file(run.output)}' while it runs), and what crosses is not encrypted"
    ]


def remote_file(output: str) -> Path:
    """The file that says where the servers of a run are, while the job runs."""
    return Path(output) / PLACE


def can_share(run: Run, trainers: int) -> bool:
    """Whether this many trainers can share each step of a run evenly."""
    try:
        run.data.batch_sizes(trainers)
    except UsageError:
        return False
    return True


def shares_line(run: Run, trainers: int) -> list[str]:
    """A line on which numbers of trainers can share a step evenly; none if all numbers can."""
    able = [each for each in range(1, trainers + 1) if can_share(run, each)]
    if len(able) == trainers:
        return []
    return [
        f"{', '.join(map(str, able))} of {trainers} trainers can share data.global_batch_size "
        f"{run.data.global_batch_size} evenly; where so many are left as cannot, the last of them wait"
    ]


def run_of_servers(run: Run, trainers: int, servers: int) -> Run:
    """The run for which servers are planned: together they look up as many samples as the trainers train on."""
    samples = run.data.local_batch_size(trainers) * trainers
    data = replace(run.data, batch_size=-(-samples // servers), global_batch_size=None, batch_changes=())
    return replace(run, data=data)
