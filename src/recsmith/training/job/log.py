"""What a job reports: lines of log.jsonl, TensorBoard, times of steps, and text for the person who waits."""

import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recsmith.errors import printable
from recsmith.files import Raw, json_lines, replace_file
from recsmith.jobs.log import LOG_FILE, Board, write_message
from recsmith.jobs.log_lines import LOG
from recsmith.plans import Plan
from recsmith.scoring.scores import by_label, shown_scores
from recsmith.training.run import MADE_HERE, Run
from recsmith.training.seams.registry import systems, trains_layers
from recsmith.training.step_clock import STEPS
from recsmith.units import counted, format_size, format_time

if TYPE_CHECKING:
    from torch import nn

Item = TypeVar("Item")


def tell_pid() -> None:
    """Send the process that started this job the pid of the process to signal; a launcher knows it already."""
    if LOG_FILE in os.environ:
        write_message({"pid": os.getpid()})


def tell_note(text: str) -> None:
    """Show a note before a run has its log: to the process that started this job, or on stderr; only on rank 0."""
    if os.environ.get("RANK", "0") == "0":
        _tell({"note": text})


def _tell(message: Raw) -> None:
    """Send a message to the process that started this job, or print it to stderr under a launcher."""
    if LOG_FILE in os.environ:
        write_message(message)
    else:
        _print(progress_text(message))


def _print(text: str) -> None:
    print(f"recsmith: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201


class RunLog:
    """Rank 0's record of a run; other ranks write nothing. member: an array's member, named before each message."""

    def __init__(self, folder: Path, rank: int, *, tensorboard: bool, step: int, member: str | None = None) -> None:
        self.rank = rank
        self._member = {} if member is None else {"member": member}
        self._file = folder / LOG
        self._board: Board | None = None
        self._refused = False  # whether the disk refused the previous line
        self.heard: Callable[[str, Raw], None] | None = None  # called with each line, if watchers receive them
        if rank:
            return
        # drop lines of steps that were lost with the previous job, and will be written again
        self.forget(lambda line: not isinstance(at := line.get("step", 0), int) or at > step)
        if tensorboard:
            self._board = Board(folder / "tensorboard", step + 1)

    def lead(self) -> None:
        """Write the record of the run from now on, after the rank that wrote it is gone."""
        self.rank, os.environ["RANK"] = 0, "0"

    def write(self, event: str, values: Raw) -> None:
        """Write a line of log.jsonl, and its numbers to TensorBoard if it has a step."""
        if self.rank:
            return
        self._append(json.dumps({"event": event, **values}) + "\n")
        if self._board is not None and "step" in values:
            self._board.write(values["step"], by_label(values), event)
        if self.heard is not None:
            self.heard(event, values)

    def show(self, step: int, name: str, text: str) -> None:
        """Write text to TensorBoard."""
        if self._board is not None:
            self._board.write_text(step, name, text)

    def close(self) -> None:
        """Write out what TensorBoard still holds in memory."""
        if self._board is not None:
            self._board.close()

    def say(self, message: Raw) -> None:
        """Send a message to the process that started this job, or print it to stderr under a launcher."""
        if not self.rank:
            _tell({**message, **self._member})

    def warn(self, text: str) -> None:
        """Show a note from any rank: ranks other than 0 write it to stderr, which their launcher keeps."""
        if self.rank:
            _print(f"rank {self.rank}: {text}")
        else:
            self.say({"note": text})

    def _append(self, line: str) -> None:
        """Append a line, whole or not at all; if the disk refuses it, report that once and go on without it."""
        problem, data = None, line.encode()
        try:
            with self._file.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(data) < len(data):
                    file.truncate(size)
                    problem = "no space left for a whole line"
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and not self._refused:
            self.say({"note": f"'{self._file}' cannot be written: {problem}; training goes on without its lines"})
        self._refused = problem is not None

    def forget(self, lost: Callable[[Raw], bool]) -> None:
        """Drop lines that are half written, or for which `lost` is true because they will be written again."""
        if self.rank or not self._file.exists():
            return
        read = list(json_lines(self._file))
        kept = [line for line, event in read if event is not None and line.endswith(b"\n") and not lost(event)]
        if len(kept) < len(read):
            replace_file(self._file, b"".join(kept))


class StepTimes:
    """How the time of steps since the last line is spent: waiting for data, forward, and the rest of the step."""

    def __init__(self) -> None:
        self.begun, self.parts, self.steps = STEPS.now(), {"data": 0.0, "forward": 0.0}, 0
        self.samples = 0  # samples that this rank was assigned to read
        self._heard = 0.0  # seconds of waiting for data that `waited` has returned so far

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to a part."""
        self.parts[part] += seconds

    def waited(self) -> float:
        """Seconds of waiting for data since the last call, or since the last line."""
        seconds, self._heard = self.parts["data"] - self._heard, self.parts["data"]
        return seconds

    def take(self) -> tuple[float, dict[str, float]]:
        """(seconds since the last line, seconds of each part in a mean step), and start again from zero."""
        seconds = STEPS.now() - self.begun
        steps = max(self.steps, 1)
        known = {part: spent / steps for part, spent in self.parts.items()}
        shares = {**known, "backward": max(0.0, seconds / steps - sum(known.values()))}
        self.__init__()
        return seconds, shares


def timed(source: Iterator[Item], times: StepTimes) -> Generator[Item]:
    """The batches, while counting how long the loop waits for them."""
    while True:
        begun = STEPS.now()
        batch = next(source, None)
        times.add("data", STEPS.now() - begun)
        if batch is None:
            return
        yield batch


def time_forward(model: "nn.Module", times: StepTimes) -> None:
    """Count the seconds of forward passes (on a GPU, of launching them)."""
    begun = [0.0]

    def before(*_: object) -> None:
        begun[0] = STEPS.now()

    def after(*_: object) -> None:
        times.add("forward", STEPS.now() - begun[0])

    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)


def progress_text(message: Raw) -> str:
    """A message of a job as a line for people."""
    if "member" in message:
        return f"{message['member']}: {progress_text({key: each for key, each in message.items() if key != 'member'})}"
    if "note" in message:
        return str(message["note"])
    scores = message["scores"]
    parts = ", ".join(f"{part} {_ms(seconds)}" for part, seconds in message["parts_s"].items())
    whole = f"/{message['steps']:,}" if message.get("steps") else ""
    more = "".join(f", {said}" for said in message.get("said", ()))
    left = f", {format_time(message['left_s'])} left" if message.get("left_s") is not None else ""
    speed = f"{message['samples_per_s']:,.0f} samples/s (step {_ms(message['step_s'])}: {parts})"
    if "own_batches" in message:  # asynchronous trainers
        speed = (
            f"{message['samples_per_s']:,.0f} samples/s of all trainers (this one: {message['own_batches']:,} of "
            f"{message['batches']:,} batches, the newest with rows {counted(message['lag'], 'step')} behind; a batch "
            f"{_ms(message['step_s'])}: {parts})"
        )
    return f"step {message['step']:,}{whole}: {shown_scores(scores, ('logloss', 'ne', 'auc'))}, {speed}{more}{left}"


def _ms(seconds: Any) -> str:
    return f"{seconds * 1e3:.1f} ms"


def starting_lines(
    run: Run, plan: Plan, *, parameters: int, samples: int | None, ranks: int | None = None
) -> list[str]:
    """Lines about model, data and plan. parameters: count of the whole model. samples: count in its data, if known.

    ranks: number of training ranks, if it is not the plan's.
    """
    tables = plan.workload.tables
    weights = sum(table.num_embeddings * table.embedding_dim for table in tables)
    sizes = [table.num_embeddings for table in tables]
    types: dict[str, int] = {}
    for placement in plan.placements:
        types[placement.sharding_type] = types.get(placement.sharding_type, 0) + 1
    ranks = ranks or plan.cluster.job_world_size
    local = ", then ".join(f"{size:,}" for _, size in run.data.batch_sizes(ranks).changes)
    made = f"made now, by {plan.planner}" if run.plan in MADE_HERE else run.plan
    return [
        f"model {run.model.name}: {parameters - weights:,} dense parameters, and {weights:,} in {len(tables)} tables "
        f"of {min(sizes):,} to {max(sizes):,} rows ({format_size(weights * 4)})",
        f"data: {'unknown number of' if samples is None else f'{samples:,}'} samples; {local} a rank and step on "
        f"{counted(ranks, 'rank')}, {_learners(run)}",
        f"plan {plan.digest[:12]} ({made}): " + ", ".join(f"{count} {kind}" for kind, count in sorted(types.items()))
        + _groups(plan),
        *(line for system in systems() for line in system.start_lines(run, plan)),
    ]  # fmt: skip


def _groups(plan: Plan) -> str:
    """The sharding groups of a plan in words, if there are several."""
    if (made := plan.cluster.replication) is None:
        return ""
    every = "every step" if made.steps_per_sync == 1 else f"every {made.steps_per_sync} steps"
    return f"; in {made.replicas} sharding groups of {counted(plan.cluster.world_size, 'rank')}, averaged {every}"


def _learners(run: Run) -> str:
    """The optimizers of tables and of the rest, in words."""
    step = run.step_named[0]
    dense = step if trains_layers(run) else run.optimizers.dense.name
    rest = any(system.tables_rest(run) for system in systems())
    tables = "tables rest" if rest else f"{' and '.join(run.optimizers.sparse.names)} for tables"
    return f"{tables}, {dense} for the rest"
