"""A trainer's side of the servers: it pulls rows and pushes gradients once a step, and counts what it moves."""

import os
import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from recsmith.errors import RecSmithError
from recsmith.jobs.log import write_message
from recsmith.plans import Plan, plan_from_raw
from recsmith.sharding import Shard
from recsmith.training.job.log import RunLog
from recsmith.training.systems.remote.calls import (
    Departed,
    LeftOut,
    Pending,
    ServerCalls,
    Tensors,
    unwritten,
    worded,
    words_of,
)
from recsmith.training.systems.remote.group import TrainerGroup
from recsmith.training.systems.remote.members import HOLD
from recsmith.training.systems.remote.updates import shard_key, shards_by_table
from recsmith.units import counted

BEATS = 4  # signs of life that a trainer sends within the timeout
Waiting = dict[int, Pending]  # server -> function that waits for its answer


@dataclass
class RemoteCounts:
    """What a trainer has moved: rows pulled and pushed, bytes of these rows and of their ids, bytes of all messages.

    server_s: seconds spent waiting for servers in pulls and pushes.
    """

    steps: int = 0
    rows: int = 0
    row_bytes: int = 0
    id_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    server_s: float = 0.0


@dataclass
class TableClient:
    """A trainer's access to the tables of a job, and to what server 0 knows of the other trainers.

    calls: the connection to the servers. clock: number of steps that all trainers have pushed.
    """

    calls: ServerCalls
    clock: int = 0
    counts: RemoteCounts = field(default_factory=RemoteCounts)

    def __post_init__(self) -> None:
        self.rank, self.world, self.generation, self.trainers = 0, 1, 0, 1
        self.batch: int | None = None  # number of the leased batch, if trainers do not keep step
        self.lag = 0  # steps by which its rows lag behind
        self.step_s: float | None = None  # seconds of a mean step of all trainers, once these are done
        self.dense: Tensors = {}  # this trainer's dense layers, if they are on server 0
        self.parameters = dict[str, torch.nn.Parameter]()
        self.group, self.timeout_s = TrainerGroup(), self.calls.place.timeout_s
        self.lost, self.joined, self.left = list[str](), list[str](), list[str]()  # names of trainers, in order
        self._logged = dict[str, int]()  # how many names of each list are in the log
        self.leaving: Callable[[], bool] = lambda: False  # whether this trainer is to leave the others
        self._heard = time.monotonic()
        self._shards = dict[str, list[Shard]]()
        self._stop = threading.Event()
        self.lookups: list[tuple[str, torch.Tensor, torch.Tensor]] = []  # (table, ids, their rows) of the step
        self._pushing = Waiting()  # pushes that servers have not answered yet

    def gather(self) -> dict[str, Any]:
        """Wait for the other trainers; the place of this one among them, or `over` if the job has ended."""
        place = self.wait_for("gather")
        if "over" not in place:
            self.rank, self.world, self.generation = place["rank"], place["world"], place["generation"]
            self.clock, self.lookups, self._pushing = place["step"], [], Waiting()
            os.environ["RANK"] = str(self.rank)  # rank 0 writes messages
            self._tell(place)
        return place

    def begin(self) -> tuple[Plan, Any, dict[str, str], Tensors]:
        """State of the servers: (their plan, progress, parameter name of each table, dense layers)."""
        answer = self._call(0, "begin")
        said = words_of(answer)
        plan = plan_from_raw(said["plan"], "server 0's plan")
        self._shards, self.trainers = shards_by_table(plan), said["trainers"]
        return plan, said["progress"], said["names"], answer

    @contextmanager
    def living(self) -> Generator[None]:
        """Report regularly that this trainer lives; cut its process group once a trainer of it was left out."""

        def beat() -> None:
            while not self._stop.wait(self.timeout_s / BEATS):
                generation, group = self.generation, self.group
                try:
                    said = self.ask("alive", generation=generation)
                    self._heard = time.monotonic()
                    if not generation:
                        self._tell(said)
                    if said["broken"]:
                        group.cut()
                except LeftOut:
                    group.cut()
                    return
                except RecSmithError:  # the next step raises it
                    continue

        threading.Thread(target=beat, daemon=True, name="recsmith-alive").start()
        try:
            yield
        finally:
            self._stop.set()

    def left_out(self) -> str | None:
        """Why this trainer was left out; None if it was not."""
        try:
            self.ask("alive")
        except LeftOut as error:
            return str(error)
        except RecSmithError:
            pass
        return None

    def _tell(self, said: dict[str, Any]) -> None:
        """Report which trainers were left out, joined or left to the process that started the job, each once."""
        now = f"{counted(said['trainers'], 'trainer')} {'share a step' if self.generation else 'take batches'} now"
        for name in said["lost"][len(self.lost) :]:
            write_message({"left_out": name})
        for name in said["joined"][len(self.joined) :]:
            write_message({"note": f"{name.replace('-', ' ', 1)} joined: {now}"})
        for name in said["left"][len(self.left) :]:
            write_message({"note": f"{name.replace('-', ' ', 1)} was asked to end and left: {now}"})
        self.lost, self.joined, self.left = said["lost"], said["joined"], said["left"]

    def log_changes(self, log: RunLog, step: int) -> None:
        """Log which trainers came and went since the last such event, if any did."""
        now = {"joined": self.joined, "left": self.left, "lost": self.lost}
        new = {key: names[self._logged.get(key, 0) :] for key, names in now.items()}
        if any(new.values()):
            self._logged = {key: len(names) for key, names in now.items()}
            log.write("trainers", {"step": step, **new})

    def shards(self, table: str) -> list[Shard]:
        """The shards of a table; the rank of a shard is its server."""
        return self._shards[table]

    def pull(self, ids: dict[str, torch.Tensor], *, train: bool) -> Tensors:
        """The rows of each table's ids, which are sorted and distinct. train: whether gradients are pushed later."""
        asked: dict[int, Tensors] = {}
        places: list[tuple[str, Shard, torch.Tensor | slice]] = []
        for table, wanted in ids.items():
            for shard in self._shards[table]:
                first, last = shard.rows
                whole = len(self._shards[table]) == 1
                bounds = torch.searchsorted(wanted, torch.tensor([first, last])).tolist()
                here = slice(None) if whole else slice(*bounds)
                asked.setdefault(shard.rank, {})[shard_key(shard)] = wanted[here] - first
                places.append((table, shard, here))
        answers = self._call_all("pull", asked, train=train, dense=False)
        dims = {table: max(each.columns[1] for each in self._shards[table]) for table in ids}
        rows = {table: torch.empty(len(wanted), dims[table]) for table, wanted in ids.items()}
        for table, shard, here in places:
            rows[table][here, slice(*shard.columns)] = answers[shard.rank][shard_key(shard)]
        if train:
            self._places, self.counts.steps = places, self.counts.steps + 1
            self.counts.rows += sum(map(len, ids.values()))
            self.counts.row_bytes += sum(each.numel() * each.element_size() for each in rows.values())
            self.counts.id_bytes += sum(each.numel() * 8 for per in asked.values() for each in per.values())
        return rows

    def pull_dense(self) -> None:
        """Copy the current dense layers of server 0 into this trainer's."""
        answers = self._call_all("pull", {0: {}}, train=False, dense=True)
        with torch.no_grad():
            for name, each in self.dense.items():
                each.copy_(answers[0][name])

    def push(self) -> None:
        """Push the gradients of the rows that the step has looked up.

        `commit` waits until servers have them. A leased batch waits for no other trainer. Server 0 gets its part last,
        and counts the batch then, because all other servers have theirs.
        """
        gradients = {table: _gradient(rows) for table, _, rows in self.lookups}
        sent: dict[int, Tensors] = {}
        for table, shard, here in self._places:
            sent.setdefault(shard.rank, {})[shard_key(shard)] = gradients[table][here, slice(*shard.columns)]
        self.lookups = []
        said = {"rank": self.rank, "world": self.world, "batch": self.batch}
        if self.batch is not None:
            sent.setdefault(0, {}).update({f"grad.{name}": _gradient(each) for name, each in self.parameters.items()})
        if time.monotonic() - self._heard > self.timeout_s:
            self.ask("alive")  # this process may have been stopped, and left out
        if self.batch is None:
            self._pushing = self._begin_all("push", sent, **said)
            return
        last = {server: each for server, each in sent.items() if server == 0}
        self._call_all("push", {server: each for server, each in sent.items() if server}, **said)
        self._call_all("push", last, **said)

    def commit(self) -> None:
        """Wait until all trainers have pushed the step.

        Raises:
            Regroup: the trainers have changed, and the step is void.
        """
        pushing, self._pushing = self._pushing, Waiting()
        self._wait_all(pushing)
        self.wait_for("commit", generation=self.generation, step=self.clock)
        self.clock += 1

    def ask(self, function: str, **words: Any) -> Any:
        """The answer of server 0."""
        return words_of(self._call(0, function, **words))["answer"]

    def wait_for(self, function: str, **words: Any) -> Any:
        """The answer of server 0, asked again until it has one.

        Raises:
            Departed: this trainer is to leave, and asked for its place or its next batch.
        """
        answer = None
        while answer is None:
            if function in ("gather", "lease") and self.leaving():
                raise Departed
            answer = self.ask(function, **words)
        return answer

    def read(self, shard: Shard, first: int, last: int) -> torch.Tensor:
        """Rows `first` to `last` (exclusive) of a shard, counted from its first row."""
        said = {"shard": shard_key(shard), "first": first, "last": last}
        return self._call(shard.rank, "read", **said, committed=self.clock, generation=self.generation)["rows"]

    def changed(self) -> bool:
        """Whether the set of trainers changes within twice the timeout, as it does if one of them has died."""
        return any(self.ask("changed", generation=self.generation) for _ in range(int(2 / HOLD)))

    def to_all(self, function: str, tensors: Tensors, progress: Any, **words: Any) -> None:
        """Send the same call to every server at once, and wait for all answers. progress: how far the trainers are."""
        servers = range(self.calls.place.servers)
        said = worded(tensors, progress=progress, committed=progress["step"], generation=self.generation, **words)
        for wait in [self.calls.begin(each, function, said, self.timeout_s) for each in servers]:
            wait()

    def save(self, dense: Tensors, progress: Any, random: list[Any]) -> str | None:
        """Have the servers save the job; returns what went wrong, or None. Writing may take longer than a call may.

        Raises:
            RecSmithError: a server does not answer, or writing takes longer than `long_s` of the servers' place.
        """
        self.to_all("save", dense, progress, random=random, save=secrets.token_hex(8))
        writing, until = set(range(self.calls.place.servers)), time.monotonic() + self.calls.place.long_s
        problems: list[str | None] = []
        while writing:
            if time.monotonic() > until:
                raise unwritten(sorted(writing), self.calls.place)
            asked = {server: self.calls.begin(server, "written", worded(), self.timeout_s) for server in writing}
            done = {server: said for server, wait in asked.items() if (said := words_of(wait()))["done"]}
            problems += [each["problem"] for each in done.values()]
            writing -= done.keys()
        return next(filter(None, problems), None)

    def _call(self, server: int, function: str, **words: Any) -> Tensors:
        timeout = self.calls.place.long_s if function == "begin" else self.timeout_s
        return self.calls.call(server, function, worded(**words), timeout)

    def _call_all(self, function: str, tensors: dict[int, Tensors], **words: Any) -> dict[int, Tensors]:
        return self._wait_all(self._begin_all(function, tensors, **words))

    def _begin_all(self, function: str, tensors: dict[int, Tensors], **words: Any) -> Waiting:
        """Call several servers at once, without waiting for their answers."""
        words, begun = {"committed": self.clock, "generation": self.generation, **words}, time.perf_counter()
        sent = {server: worded(each, **words) for server, each in tensors.items()}
        waiting = {server: self.calls.begin(server, function, each, self.timeout_s) for server, each in sent.items()}
        self.counts.sent_bytes += _bytes(sent)
        self.counts.server_s += time.perf_counter() - begun
        return waiting

    def _wait_all(self, waiting: Waiting) -> dict[int, Tensors]:
        """Wait for the answers of all servers."""
        begun = time.perf_counter()
        answers = {server: wait() for server, wait in waiting.items()}
        self.counts.received_bytes += _bytes(answers)
        self.counts.server_s += time.perf_counter() - begun
        return answers


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _bytes(messages: dict[int, Tensors]) -> int:
    return sum(each.numel() * each.element_size() for per in messages.values() for each in per.values())
