"""The plan of a job of several hosts after their number has changed, and the report about it.

Rank 0 plans for the available ranks. After losing a host, the plan keeps every table in place, except those that only
the lost ranks held: what else moves is at most a twentieth of these. plan_rules.py says how a plan of fewer ranks loads
a checkpoint.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import NoPlanFound, RecSmithError
from recsmith.files import decode, dump_json, encode, read_json, replace_file
from recsmith.jobs.hosts.rounds import HostAgent, HostRound
from recsmith.planning.replan import replan
from recsmith.plans import Plan, load_plan
from recsmith.plans.diff import as_now, moved_bytes
from recsmith.problems import constraints_from_raw, constraints_to_raw
from recsmith.training.job.groups_left import moved_of_groups, of_groups_left
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan import plan_here, plan_of_file, plan_to_go_on
from recsmith.training.job.plan_rules import loadable_rules
from recsmith.training.run import MADE_HERE, Run
from recsmith.training.seams.in_jobs import Attached
from recsmith.units import format_size, format_time

RUNNING = "running.json"  # file in the hosts' meeting folder: which hosts trained last, and under which plan
SPARE = 1.05  # bytes that a plan of fewer hosts may move, as a multiple of those that must
REPLAN_S = 20.0  # time limit of the search for such a plan: large jobs stop here with the best so far


@noun
class RunningHosts:
    """Hosts that trained together, and the digest of their plan."""

    plan: str
    hosts: tuple[HostAgent, ...]


@noun
class HostChange:
    """The effect of a change of hosts on the plan.

    plan_s: seconds of planning. moved_bytes: bytes of tables that ranks receive without having held them before.
    least_bytes: bytes that any plan must move, because none of the remaining ranks held them. step: the step after
    which training continues; 0 if there was no checkpoint.
    """

    hosts: tuple[str, ...]
    lost: tuple[str, ...]
    joined: tuple[str, ...]
    plan: str
    plan_s: float
    step_s: float
    moved_bytes: int
    least_bytes: int
    lost_at_s: float | None = None
    step: int = 0

    def sentence(self, seconds: float | None) -> str:
        """A line for people. seconds: from the loss to the end of the next step."""
        names = {"was lost": self.lost, "has come": self.joined}
        said = " and ".join(f"{', '.join(some)} {what}" for what, some in names.items() if some)
        at = f" at {time.strftime('%H:%M:%S', time.localtime(self.lost_at_s))}" if self.lost_at_s else ""
        begins = f"go on after step {self.step:,}" if self.step else "begin anew, for there was no checkpoint yet,"
        ratio = f", {self.moved_bytes / self.least_bytes:.2f} of the least" if self.least_bytes else ""
        took = "" if seconds is None else f"; {seconds:.1f} s from the loss to the next step"
        return (
            f"host {said}{at}: {', '.join(self.hosts)} {begins} under plan {self.plan[:12]} (made in "
            f"{format_time(self.plan_s)}, embeddings {format_time(self.step_s)} of a step), which moves "
            f"{format_size(self.moved_bytes)} of tables{ratio}{took}"
        )


def plan_of_hosts(
    parts: Unsharded, before: Plan | None, there: HostRound, folder: Path, step: int
) -> tuple[Plan, HostChange | None]:
    """(the plan of a round of hosts, made by this process; what has changed, or None if nothing has).

    before: the plan of the checkpoint. folder: where hosts meet. step: step of the checkpoint, 0 without one.

    Raises:
        Infeasible, NoPlanFound: the tables do not fit on the remaining hosts.
        UsageError: the state of the checkpoint cannot be loaded under the plan.
    """
    begun = time.perf_counter()
    running = _running(folder, Path(parts.run.output)) or before
    places = {} if running is None else _places(folder, running, there)
    ranks, per_host = sum(each.ranks for each in there.hosts), there.hosts[0].ranks
    if _in_groups(parts.run):
        plan = of_groups_left(plan_of_file(parts.run.plan), parts.run, ranks)
    else:
        moved_from = None if running is None else as_now(running, places)
        plan = _made(parts, before, moved_from, ranks, per_host, least=there.lost != ())
    seconds = time.perf_counter() - begun
    if not there.lost and not there.joined:
        return plan, None
    moved, least = (0, 0) if running is None else _moved(running, plan, places)
    return plan, HostChange(
        hosts=tuple(each.name for each in there.hosts), lost=there.lost, joined=there.joined, plan=plan.digest,
        plan_s=seconds, step_s=plan.cost.step_s, moved_bytes=moved, lost_at_s=there.lost_at_s, step=step,
        least_bytes=least,
    )  # fmt: skip


def _in_groups(run: Run) -> bool:
    """Whether a run's plan file has several sharding groups."""
    return run.plan not in MADE_HERE and load_plan(run.plan).cluster.replication is not None


def _moved(running: Plan, plan: Plan, places: Mapping[int, int]) -> tuple[int, int]:
    """(bytes of tables that ranks receive, bytes that must move). places: current rank by rank of the running job."""
    if running.cluster.job_world_size > running.cluster.world_size or plan.cluster.replication is not None:
        return moved_of_groups(running, plan, places)
    now = as_now(running, places)
    received = moved_bytes(now, plan.placements, plan.workload, plan.cluster)
    moved = sum(size for shards in received.values() for _, size in shards)
    return moved, least_moved(now, plan.cluster.world_size)


def note_running(folder: Path, there: HostRound, plan: Plan) -> None:
    """Record which hosts train, and under which plan, for the next round."""
    made = RunningHosts(plan=plan.digest, hosts=there.hosts)
    replace_file(folder / RUNNING, dump_json(encode(made)).encode())


def _made(
    parts: Unsharded, before: Plan | None, moved_from: Plan | None, ranks: int, per_host: int, *, least: bool
) -> Plan:
    """A plan for `ranks` ranks. least: move little more than necessary."""
    run = parts.run
    if run.plan in MADE_HERE:
        plan = plan_to_go_on(parts, before, ranks, per_host)
        return _moving_little(plan, moved_from, ranks) if least and moved_from else plan
    fresh = load_plan(run.plan)
    if fresh.cluster.world_size == ranks:
        return plan_here(parts, ranks, per_host, before)
    return _moving_little(of_fewer_hosts(fresh, before, run, ranks), moved_from or fresh, ranks)


def of_fewer_hosts(plan: Plan, before: Plan | None, run: Run, ranks: int) -> Plan:
    """The problem of a plan for fewer hosts, as an unsolved plan: its workload, cluster and rules.

    before: the plan of the checkpoint, whose state must be loadable.
    """
    space, limits = constraints_from_raw(plan.constraints, "the plan of the run")
    rules = (*limits.rules, *(loadable_rules(before or plan)))
    return replace(
        plan, workload=replace(plan.workload, batch_size=run.data.local_batch_size(ranks)),
        cluster=replace(plan.cluster, hosts=ranks // plan.cluster.local_world_size),
        constraints=constraints_to_raw(space, replace(limits, rules=rules)),
    )  # fmt: skip


def _moving_little(fresh: Plan, moved_from: Plan | None, ranks: int) -> Plan:
    """A plan for the problem of `fresh` that moves at most a twentieth more than necessary; otherwise any plan."""
    assert moved_from is not None
    old = replace(moved_from, constraints=fresh.constraints)
    limit = int(SPARE * least_moved(moved_from, ranks))
    for most in (limit, "100%"):
        try:
            return replan(
                old, fresh.workload, fresh.cluster, max_moved=most, cost_model=fresh.cost_model, time_limit_s=REPLAN_S
            ).result.plan
        except NoPlanFound:
            if most == "100%":
                raise
    raise AssertionError


def least_moved(plan: Plan, ranks: int) -> int:
    """Bytes of tables that no rank below `ranks` holds, which any plan for these ranks must move."""
    tables = {table.name: table for table in plan.workload.tables}
    left = dict.fromkeys(tables, 0)
    whole = set[str]()
    for shard in plan.shards():
        if shard.rank < ranks:
            rows, columns = shard.rows[1] - shard.rows[0], shard.columns[1] - shard.columns[0]
            left[shard.table] += rows * columns * tables[shard.table].element_bytes
            if (rows, columns) == (tables[shard.table].num_embeddings, tables[shard.table].embedding_dim):
                whole.add(shard.table)  # the rank has a copy, or the only shard
    return sum(table.weight_bytes - left[name] for name, table in tables.items() if name not in whole)


def _running(folder: Path, output: Path) -> Plan | None:
    """The plan that trained last, if it is still known."""
    noted, file = _noted(folder), output / "plan.json"
    try:
        plan = load_plan(file) if file.exists() else None
    except RecSmithError:
        return None
    return plan if noted is not None and plan is not None and plan.digest == noted.plan else None


def _noted(folder: Path) -> RunningHosts | None:
    file = folder / RUNNING
    return decode(RunningHosts, read_json(str(file)), str(file)) if file.exists() else None


def _places(folder: Path, plan: Plan, there: HostRound) -> dict[int, int]:
    """Current rank by rank of a plan, for hosts that are still there."""
    noted, per_host = _noted(folder), plan.cluster.job_local_world_size
    if noted is None or noted.plan != plan.digest:
        return {rank: rank for rank in range(plan.cluster.job_world_size)}
    found = dict[int, int]()
    for old, agent in enumerate(noted.hosts):
        if agent.id in there.ids and agent.ranks == per_host:
            now = there.place_of(agent.id)
            found |= {old * per_host + local: now * per_host + local for local in range(per_host)}
    return found


@dataclass
class HostsTold(Attached):
    """Reports a change of hosts once the first step after it is done."""

    change: HostChange
    steps: int = 0

    def before_step(self, job: Any) -> None:
        """Report after the first step."""
        self.steps += 1
        if self.steps == 2:
            seconds = None if self.change.lost_at_s is None else time.time() - self.change.lost_at_s
            times = {} if seconds is None else {"seconds": seconds}
            job.log.write("hosts", {**encode(self.change), **times})
            job.log.say({"note": self.change.sentence(seconds)})
