"""A server: the shards that the plan gives its rank, what trainers pull of them, push to them, and have saved.

Servers are a planned job of as many ranks whose steps come from elsewhere: they hold the sharded model, its optimizer
and its checkpoints, and so a checkpoint is that of the planned job.
"""

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.files import Raw
from recsmith.jobs.machine import LOOPBACK, loopback_interface
from recsmith.jobs.worker import TIMEOUT
from recsmith.plans import plan_to_raw
from recsmith.training.agreement import Agreement
from recsmith.training.checkpoints import Checkpoints
from recsmith.training.job import CHECKPOINTS, progress_of, set_state
from recsmith.training.models import unsharded
from recsmith.training.optimizers.building import set_schedule
from recsmith.training.plan import agreed_plan
from recsmith.training.plan_rules import check_loadable
from recsmith.training.remote.calls import Function, ServerFunctions, ServerPlace, Tensors, worded, words_of
from recsmith.training.remote.leases import BatchLeases
from recsmith.training.remote.members import HOLD, Members
from recsmith.training.remote.parts import check_servers, run_of_servers
from recsmith.training.remote.updates import HeldShard, merged
from recsmith.training.run import Checkpointing, Run, run_from_raw
from recsmith.training.sharded import ShardedJob, rank_device, shard, table_of


def serve(place: ServerPlace, server: int, settings: dict[str, Any]) -> ServerFunctions:
    """The functions of a server of a run (calls.MakesFunctions), in a process group of all servers.

    settings: `run`, how many `trainers` begin, and `meet`, the store where process groups form ('host:port').
    """
    host, _, port = settings["meet"].rpartition(":")
    if host == LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback_interface())
    store = PrefixStore(f"{place.job}/servers", TCPStore(host, int(port), is_master=False))
    dist.init_process_group("gloo", store=store, rank=server, world_size=place.servers, timeout=TIMEOUT)
    made = TableServer(run_from_raw(settings["run"], "the run"), settings["trainers"])
    return ServerFunctions(server, place.key, made.functions())


class TableServer:
    """A server of a run, on every rank of the servers' process group.

    trainers: that the job begins with.

    Raises what preparing a planned job raises.
    """

    def __init__(self, run: Run, trainers: int) -> None:
        assert run.remote is not None
        self.number = dist.get_rank()
        self.run, self.agreement, self._turn = run, Agreement(), threading.RLock()
        parts = unsharded(run)
        folder, settings = Path(run.output) / CHECKPOINTS, run.checkpoint or Checkpointing()
        self.checkpoints = ServerCheckpoints(folder, settings, self.agreement)
        saved = self.checkpoints.newest() if run.checkpoint else None
        parts = replace(parts, run=run_of_servers(run, trainers, dist.get_world_size()))
        self.plan = agreed_plan(parts, saved.plan if saved else None, dist.get_world_size())
        check_servers(self.plan)
        if saved is not None:
            check_loadable(saved.plan, self.plan)
        self.job = shard(run, self.plan, parts.task, rank_device())
        progress = progress_of(saved)
        set_state(self.job, run, saved, progress)
        self.step, self.progress = progress.step, saved.progress if saved else None
        self.leases = leases_of(run, trainers, progress.step)
        self.trainers = trainers
        self._saver = ThreadPoolExecutor(1)
        self.members = Members(trainers, run.remote.timeout_s, step=progress.step)
        self.shards = held_shards(self.job)
        self._pulled = dict[str, Tensors]()  # ids, by who pulled them
        self._pushed = dict[int, Tensors]()  # gradients and their ids of the step under way, by rank

    def functions(self) -> dict[str, Function]:
        """What trainers may call."""
        named: list[Function] = [self.alive, self.gather, self.commit, self.changed, self.leave, self.begin, self.pull,
                                 self.push, self.read, self.keep, self.save, self.written, self.lease, self.ended,
                                 self.stop, self.saved, self.drained]  # fmt: skip
        return {each.__name__: each for each in named}  # type: ignore[attr-defined]

    def alive(self, caller: str, _: Tensors) -> Tensors:
        """A trainer says that it lives."""
        (self.leases or self.members).alive(caller)
        return {}

    def gather(self, caller: str, _: Tensors) -> Tensors:
        """The rank of a trainer, once all are here."""
        found = self.members.gather(caller)
        return worded(place=found)

    def commit(self, caller: str, tensors: Tensors) -> Tensors:
        """Whether all trainers have pushed a step."""
        said = words_of(tensors)
        return worded(answer=self.members.commit(caller, said["generation"], said["step"]))

    def changed(self, caller: str, tensors: Tensors) -> Tensors:
        """Whether the trainers have changed."""
        return worded(answer=self.members.changed(caller, words_of(tensors)["generation"]))

    def leave(self, caller: str, _: Tensors) -> Tensors:
        """A trainer is done."""
        (self.leases or self.members).leave(caller)
        return {}

    def lease(self, caller: str, _: Tensors) -> Tensors:
        """What a trainer does next, where trainers do not keep step."""
        return worded(**self._leases.lease(caller))

    def ended(self, _: str, tensors: Tensors) -> Tensors:
        """The data ends before a batch."""
        self._leases.end_at(words_of(tensors)["batch"])
        return {}

    def stop(self, _: str, __: Tensors) -> Tensors:
        """Somebody asked the job to end."""
        self._leases.stop()
        return {}

    def saved(self, _: str, tensors: Tensors) -> Tensors:
        """What is before a batch is saved."""
        self._leases.saved(words_of(tensors)["batch"])
        return {}

    def drained(self, caller: str, _: Tensors) -> Tensors:
        """What became of the job, once all is trained."""
        return worded(answer=self._leases.drained(caller))

    @property
    def _leases(self) -> BatchLeases:
        assert self.leases is not None
        return self.leases

    def begin(self, _: str, __: Tensors) -> Tensors:
        """What a trainer begins with: the plan, how far training is, dense layers and the state of their optimizer."""
        names = {table_of(name) or "": name for name in self.job.rows.whole() if table_of(name)}
        with self._turn:
            return worded(flat_tensors(self.job), plan=plan_to_raw(self.plan), progress=self.progress, names=names,
                          trainers=self.trainers)  # fmt: skip

    def pull(self, caller: str, tensors: Tensors) -> Tensors:
        """Rows of ids, of every step that is committed."""
        said = words_of(tensors)
        asked = {key: ids for key, ids in tensors.items() if key in self.shards}
        with self._turn:
            self._apply(said["committed"])
            if said["train"]:
                self._pulled[caller] = asked
            rows = {key: self.shards[key].weights[ids] for key, ids in asked.items()}
            return {**rows, **self._weights()} if said.get("dense") else rows

    def push(self, caller: str, tensors: Tensors) -> Tensors:
        """Gradients of the rows that the caller has pulled, to be applied once the step is committed."""
        said = words_of(tensors)
        if self.leases is not None:
            self._push_alone(caller, tensors, said["batch"])
            return {}
        with self._turn:
            if said["generation"] != self._generation:
                self._generation, self._pushed = said["generation"], {}
            ids = self._pulled.pop(caller)
            self._world, self._pushed_step = said["world"], said["step"]
            self._pushed[said["rank"]] = {key: (ids[key], tensors[key]) for key in ids}  # type: ignore[misc]
        return {}

    def read(self, _: str, tensors: Tensors) -> Tensors:
        """A block of a shard's rows as they are."""
        said = words_of(tensors)
        with self._turn:
            self._apply(said["committed"])
            return {"rows": self.shards[said["shard"]].weights[said["first"] : said["last"]]}

    def keep(self, _: str, tensors: Tensors) -> Tensors:
        """Take the dense layers of the trainers, and how far they are."""
        self._take(tensors)
        return {}

    def save(self, _: str, tensors: Tensors) -> Tensors:
        """Begin to save all that the job is, with the other servers, who are called too; `written` tells the end."""
        self._saving = self._saver.submit(self._save, tensors)
        return {}

    def written(self, _: str, __: Tensors) -> Tensors:
        """Whether all is saved by now, and what went wrong; it waits for a while, less than a call's timeout."""
        done = not wait([self._saving], HOLD * self.members.timeout_s).not_done
        return worded(done=done, problem=self._saving.result() if done else None)

    def _save(self, tensors: Tensors) -> str | None:
        said = words_of(tensors)
        self._take(tensors)
        with self._turn:
            self.checkpoints.random = said["random"]
            problem = self.checkpoints.save(self.job, self.run, self.plan, said["progress"])
            self.checkpoints.poll()
        return problem

    _saving: "Future[str | None]"
    _generation, _world, _pushed_step = 0, 1, 0

    def _push_alone(self, caller: str, tensors: Tensors, batch: int) -> None:
        """Apply what one trainer has pushed, at once: the share of a step that one batch is."""
        rate, eps = learning_rate(self.job.optimizer, batch // self.trainers), self.run.optimizers.sparse.eps
        with self._turn, torch.no_grad():
            for key, ids in self._pulled.pop(caller).items():
                self.shards[key].update(ids, tensors[key] / self.trainers, rate, eps)
            if self.number == 0:
                dense_step(self.job, tensors, self.run, batch, self.trainers)
                self._leases.push(caller, batch)

    def _weights(self) -> Tensors:
        """Dense layers as they are now."""
        return {name: each.clone() for name, each in flat_tensors(self.job).items() if name.startswith("model.")}

    def _apply(self, committed: int) -> None:
        """Change rows by what was pushed, once it is committed."""
        if committed <= self.step or not self._pushed:
            self.step = max(self.step, committed)
            return
        rate, eps = learning_rate(self.job.optimizer, self._pushed_step), self.run.optimizers.sparse.eps
        parts: Any = [self._pushed[rank] for rank in sorted(self._pushed)]
        with torch.no_grad():
            for key, held in self.shards.items():
                found = [part[key] for part in parts if key in part]
                if found:
                    held.update(*merged(found, 1 / self._world), rate, eps)
        self.step, self._pushed = committed, {}

    def _take(self, tensors: Tensors) -> None:
        said = words_of(tensors)
        with self._turn:
            self._apply(said["progress"]["step"])
            copy_dense(self.job, tensors)
            self.progress = said["progress"]
            set_schedule(self.job.optimizer, self.step)
            self.job.optimizer.set_optimizer_step(self.step)


class ServerCheckpoints(Checkpoints):
    """Checkpoints that servers write, with the random states of the trainers."""

    random: list[Raw] = []  # noqa: RUF012

    def random_states(self) -> dict[int, Raw]:
        """Those of all trainers, which server 0 writes."""
        return dict(enumerate(self.random)) if dist.get_rank() == 0 else {}


def held_shards(job: ShardedJob) -> dict[str, HeldShard]:
    """The shards of this rank by the name that messages have for them."""
    state = job.rows.state_dict()
    momenta: dict[str, Any] = {}
    for name, kept in state["optimizer"].get("sparse", {}).get("state", {}).items():
        if table_of(name):
            momenta[name] = next((each for key, each in kept.items() if key.endswith("momentum1")), None)
    found: dict[str, HeldShard] = {}
    for name, weights in state["model"].items():
        table = table_of(name)
        if table is None:
            continue
        locals_ = weights.local_shards()
        states = momenta[name].local_shards() if momenta.get(name) is not None else [None] * len(locals_)
        for each, kept in zip(locals_, states, strict=True):
            row, column = each.metadata.shard_offsets
            found[f"{table}/{row}/{column}"] = HeldShard(each.tensor, None if kept is None else kept.tensor)
    return found


def learning_rate(optimizer: CombinedOptimizer, step: int) -> float:
    """Of tables, in the step after so many."""
    set_schedule(optimizer, step)
    groups: Any = next(part.param_groups for name, part in optimizer.optimizers if name == "sparse")
    return groups[0]["lr"]


def flat_tensors(job: ShardedJob, *, made: bool = False) -> Tensors:
    """The weights of dense layers and the state of their optimizer, by one name each; written into, they change.

    made: have the optimizer make its state where it has none yet; write into all of it then, for that changes it.
    """
    for name, part in job.optimizer.optimizers:
        if name == "dense" and made and not part.state_dict()["state"]:
            part.init_state()
    found: Tensors = {f"model.{name}": each for name, each in job.model.state_dict().items() if table_of(name) is None}
    for name, part in job.optimizer.optimizers:
        for parameter, kept in part.state_dict()["state"].items() if name == "dense" else ():
            if not parameter.startswith("__"):  # of a schedule, which follows from the step
                found |= {f"dense.{parameter}.{key}": each for key, each in kept.items()}
    return found


def dense_step(job: ShardedJob, tensors: Tensors, run: Run, batch: int, trainers: int) -> None:
    """Update dense layers by the gradients of one batch, at the rate of a step divided by the number of trainers."""
    for name, parameter in job.model.named_parameters():
        if table_of(name) is None:
            parameter.grad = tensors[f"grad.{name}"]
    part: Any = next(part for name, part in job.optimizer.optimizers if name == "dense")
    for group in part.param_groups:
        group["lr"] = run.optimizers.dense.learning_rate
    set_schedule(job.optimizer, batch // trainers)
    for group in part.param_groups:
        group["lr"] /= trainers
    part.step()


def leases_of(run: Run, trainers: int, step: int) -> BatchLeases | None:
    """The batches of a run whose trainers do not keep step; None of another one."""
    remote = run.remote
    if remote is None or not remote.staleness:
        return None
    every = None if run.checkpoint is None else run.checkpoint.every * trainers
    total = None if run.steps is None else run.steps * trainers
    return BatchLeases(trainers, remote.staleness, remote.timeout_s, every, step * trainers, total)


def copy_dense(job: ShardedJob, tensors: Tensors) -> None:
    """Write such tensors of another process into a job."""
    with torch.no_grad():
        for name, each in flat_tensors(job, made=any(name.startswith("dense.") for name in tensors)).items():
            if name in tensors:
                each.copy_(tensors[name])
