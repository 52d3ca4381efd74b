"""A server: it holds the shards of its rank in the plan; trainers pull rows, push gradients and have it save them.

Servers are the ranks of a planned job whose steps are computed by trainers. They hold the sharded model, its optimizer
and its checkpoints, so a checkpoint has the form of the planned job's.
"""

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from recsmith.files import Raw
from recsmith.jobs.machine import LOOPBACK, loopback_interface
from recsmith.plans import plan_to_raw
from recsmith.training.job.agreement import Agreement
from recsmith.training.job.checkpoints import Checkpoints
from recsmith.training.job.going_on import newest_of
from recsmith.training.job.plan import agreed_plan
from recsmith.training.job.preparing import prepare
from recsmith.training.job.resuming import CHECKPOINTS
from recsmith.training.job.sharded import rank_device, shard, table_of
from recsmith.training.job.starting import progress_of, set_state
from recsmith.training.optimizers.building import set_schedule
from recsmith.training.run import Checkpointing, Run, run_of_job
from recsmith.training.systems.remote.asked import ServersAsked
from recsmith.training.systems.remote.calls import (
    Function,
    Regroup,
    ServerFunctions,
    ServerPlace,
    Tensors,
    spoken,
    worded,
    words_of,
)
from recsmith.training.systems.remote.leases import BatchLeases
from recsmith.training.systems.remote.members import HOLD, Members, ended_in
from recsmith.training.systems.remote.model import copy_dense, dense_step, flat_tensors, learning_rate
from recsmith.training.systems.remote.planning import can_share, check_servers
from recsmith.training.systems.remote.updates import held_shards, merged


def serve(place: ServerPlace, server: int, settings: dict[str, Any]) -> ServerFunctions:
    """The functions of a server of a run, in a process group of all servers.

    Args:
        place: of the servers.
        server: number of this server.
        settings: `run`; `trainers`, how many begin; `meet`, the 'host:port' of the store where process groups form; and
            `processes`, the folder in which each trainer has a folder of its own.
    """
    host, _, port = settings["meet"].rpartition(":")
    if host == LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback_interface())
    store = PrefixStore(f"{place.job}/servers", TCPStore(host, int(port), is_master=False))
    longest = timedelta(seconds=place.long_s)
    dist.init_process_group("gloo", store=store, rank=server, world_size=place.servers, timeout=longest)
    asked = ServersAsked(store, place.servers, place.timeout_s)
    made = TableServer(run_of_job(settings["run"]), settings["trainers"], asked)
    processes = Path(settings["processes"])
    made.heard.ended = lambda: ended_in(processes)
    deserted = made.heard.deserted if server == 0 else lambda: False  # other servers hear of no signs of life
    return ServerFunctions(server, place.key, made.functions(), deserted)


class TableServer:
    """One server of a run: a rank of the servers' process group.

    trainers: number that the job begins with. asked: how servers agree that all were asked to save.

    Raises what preparing a planned job raises.
    """

    def __init__(self, run: Run, trainers: int, asked: ServersAsked) -> None:
        assert run.remote is not None
        self.asked = asked
        self.number = dist.get_rank()
        self.run, self.agreement, self._turn = run, Agreement(), threading.RLock()
        folder, settings = Path(run.output) / CHECKPOINTS, run.checkpoint or Checkpointing()
        self.checkpoints = ServerCheckpoints(folder, settings, self.agreement)
        saved = newest_of(run)
        made = prepare(run, trainers, saved=saved, plan_by=agreed_plan, together=True)
        self.run, self.plan = made.run, made.plan
        check_servers(self.plan)
        self.job = shard(made.run, self.plan, made.parts.task, rank_device())
        progress = progress_of(saved)
        set_state(self.job, made.run, saved, progress)
        self.step, self.progress = progress.step, saved.progress if saved else None
        self.trainers = trainers
        self.leases = leases_of(run, trainers, progress.step)
        self.heard = self.leases or Members(
            trainers, run.remote.timeout_s, step=progress.step, can_share=lambda count: can_share(run, count)
        )
        self._saver = ThreadPoolExecutor(1)
        self.shards = held_shards(self.job)
        self._pulled = dict[str, Tensors]()  # ids that each caller has pulled for training
        self._pushed = dict[int, Tensors]()  # (ids, gradients) by shard of the step under way, by rank

    def functions(self) -> dict[str, Function]:
        """The functions that trainers may call, by name."""
        named: list[Function] = [self.begin, self.pull, self.push, self.read, self.keep, self.save, self.written]
        words = ("lease", "end_at", "stop", "saved", "drained") if self.leases else ("gather", "commit", "changed")
        return {
            **{each.__name__: each for each in named},  # type: ignore[attr-defined]
            **{each: spoken(getattr(self.heard, each)) for each in ("alive", "leave", "depart", *words)},
        }

    def begin(self, _: str, __: Tensors) -> Tensors:
        """What a trainer starts from: the plan, the progress, dense layers and the state of their optimizer."""
        names = {table_of(name) or "": name for name in self.job.rows.whole() if table_of(name)}
        with self._turn:
            return worded(flat_tensors(self.job), plan=plan_to_raw(self.plan), progress=self.progress, names=names,
                          trainers=self.trainers)  # fmt: skip

    def pull(self, caller: str, tensors: Tensors) -> Tensors:
        """The rows of ids, with all committed steps applied."""
        said = words_of(tensors)
        asked = {key: ids for key, ids in tensors.items() if key in self.shards}
        with self._turn:
            self._turn_to(said)
            if said["train"]:
                self._pulled[caller] = asked
            rows = {key: self.shards[key].weights.index_select(0, ids) for key, ids in asked.items()}
            return {**rows, **self._weights()} if said["dense"] else rows

    def push(self, caller: str, tensors: Tensors) -> Tensors:
        """Take gradients of the rows that the caller has pulled, to apply once the step is committed."""
        said = words_of(tensors)
        with self._turn:
            self._turn_to(said)
            if self.leases is not None:
                self._push_alone(caller, tensors, said["batch"], self.leases)
                return {}
            ids = self._pulled.pop(caller)
            self._world, self._pushed_step = said["world"], said["committed"]
            self._pushed[said["rank"]] = {key: (ids[key], tensors[key]) for key in ids}  # type: ignore[misc]
        return {}

    def read(self, _: str, tensors: Tensors) -> Tensors:
        """A block of a shard's rows, with all committed steps applied."""
        said = words_of(tensors)
        with self._turn:
            self._turn_to(said)
            return {"rows": self.shards[said["shard"]].weights[said["first"] : said["last"]]}

    def keep(self, _: str, tensors: Tensors) -> Tensors:
        """Take over the dense layers of the trainers, and their progress."""
        said = words_of(tensors)
        with self._turn:
            self._turn_to(said)
            copy_dense(self.job, tensors)
            self.progress = said["progress"]
            set_schedule(self.job.optimizer, self.step)
            self.job.optimizer.set_optimizer_step(self.step)
        return {}

    def save(self, _: str, tensors: Tensors) -> Tensors:
        """Begin to save the job, together with the other servers, which are called too; `written` reports the end."""
        self._saving = self._saver.submit(self._save, tensors)
        return {}

    def written(self, _: str, __: Tensors) -> Tensors:
        """Whether saving is done, and what went wrong; waits for at most a fraction HOLD of a call's timeout."""
        done = not wait([self._saving], HOLD * self.heard.timeout_s).not_done
        return worded(done=done, problem=self._saving.result() if done else None)

    def _save(self, tensors: Tensors) -> str | None:
        said = words_of(tensors)
        if not self.asked.all(said["save"]):
            return "the trainer that asked for it has ended before it asked all servers"
        with self._turn:
            self.keep("", tensors)
            self.checkpoints.random = said["random"]
            problem = self.checkpoints.save(self.job, self.run, self.plan, said["progress"])
            self.checkpoints.poll()
        return problem

    _saving: "Future[str | None]"
    _generation, _world, _pushed_step = 0, 1, 0

    def _turn_to(self, said: dict[str, Any]) -> None:
        """Catch up with the caller: apply the step that it knows to be committed, and note its generation of trainers.

        Raises:
            Regroup: the trainers have changed since, and what the caller does is void.
        """
        if said["generation"] < self._generation:
            raise Regroup("the trainers of this job have changed")
        self._apply(said["committed"])
        if said["generation"] > self._generation:
            self._generation, self._pushed = said["generation"], {}

    def _push_alone(self, caller: str, tensors: Tensors, batch: int, leases: BatchLeases) -> None:
        """Apply the gradients of one leased batch at once, divided by the number of trainers."""
        rate, eps = learning_rate(self.job.optimizer, batch // self.trainers), self.run.optimizers.sparse.eps
        if self.number == 0:
            leases.hear(caller)
        with torch.no_grad():
            for key, ids in self._pulled.pop(caller).items():
                self.shards[key].update(ids, tensors[key] / self.trainers, rate, eps)
        if self.number == 0:
            dense_step(self.job, tensors, self.run, batch, self.trainers)
            leases.push(caller, batch)

    def _weights(self) -> Tensors:
        """A copy of the current dense layers."""
        return {name: each.clone() for name, each in flat_tensors(self.job).items() if name.startswith("model.")}

    def _apply(self, committed: int) -> None:
        """Update rows by the pushed gradients, if the step is committed. committed: number of committed steps."""
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


class ServerCheckpoints(Checkpoints):
    """Checkpoints that servers write, with the random states of the trainers."""

    random: list[Raw] = []  # noqa: RUF012

    def random_states(self) -> dict[int, Raw]:
        """Random states of all trainers, which server 0 writes; none on the other servers."""
        return dict(enumerate(self.random)) if dist.get_rank() == 0 else {}


def leases_of(run: Run, trainers: int, step: int) -> BatchLeases | None:
    """The leases of batches, if trainers of the run do not keep step; None otherwise."""
    remote = run.remote
    if remote is None or not remote.staleness:
        return None
    every = None if run.checkpoint is None else run.checkpoint.every * trainers
    total = None if run.steps is None else run.steps * trainers
    return BatchLeases(trainers, remote.staleness, remote.timeout_s, every, step * trainers, total)
