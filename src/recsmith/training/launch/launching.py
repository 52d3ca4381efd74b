"""Starts a run: joins a launcher's job if there is one, and otherwise launches ranks on this machine's devices.

What a run would do is in dry_run.py.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from recsmith.adapters.installed import require_torchrec
from recsmith.errors import UsageError
from recsmith.files import Raw, Source
from recsmith.jobs.hosts.rank import as_host_rank
from recsmith.jobs.launch import launch
from recsmith.jobs.processes import TOGETHER_S
from recsmith.jobs.worker import join_group
from recsmith.training.launch.prerequisites import check_memory_limit, check_run, lines_told, own_modules
from recsmith.training.launch.ranks import launcher_environment, local_hosts, local_ranks, stand_in_note
from recsmith.training.run import Run, load_run, names_modules, run_to_raw
from recsmith.training.seams.registry import first_of, systems

LOOP = "recsmith.training.rank:train_on_rank"
WEIGHT_BYTES = 4  # bytes of a dense parameter; Adam keeps two more values for each, and DDP its gradient
OnProgress = Callable[[Any], object]


def train(
    run: Run | Source, *, settings: tuple[str, ...] = (), max_restarts: int = 0, join: bool = False,
    on_progress: OnProgress | None = None,
) -> Raw:  # fmt: skip
    """Train a run and return its result: the step reached, whether the run is complete, scores on data.test.

    Under torchrun, SLURM's srun or another launcher that sets their variables, this process becomes a rank of that job.
    Otherwise a job starts on this machine. A run that was interrupted continues from its newest checkpoint.

    Args:
        run: a Run or its file.
        settings: 'key=value' settings applied to the run.
        max_restarts: how often failed ranks are restarted from the newest checkpoint.
        join: join the running job with table servers in the run's folder as an additional trainer.
        on_progress: called with notes and steps, which `progress_text` turns into lines.

    Raises:
        UsageError: the run, its data or its plan break a rule.
        MissingExtra: torch is not installed, or TensorBoard is not and the run asks for it.
        RecSmithError: a rank failed.
    """
    made = load_run(run, settings)
    require_torchrec()
    environment = launcher_environment()
    check_memory_limit(made, starts_ranks=environment is None)
    with lines_told(run, settings), own_modules(made, run):
        for each in first_of(system.trained_runs(made) for system in systems()) or [made]:
            check_run(each, int(environment["LOCAL_RANK"]) + 1 if environment else local_ranks(made))
        if join:
            return join_running(made, on_progress)
        return _launched(made, max_restarts, on_progress) if environment is None else join_and_train(made, environment)


def join_running(run: Run, on_progress: OnProgress | None) -> Raw:
    """Join a running job as an additional trainer; UsageError if there is no job to join."""
    pid: list[int] = []
    with passing_on_signals(pid):
        joined = first_of(each.join(run, _hearing(pid, on_progress)) for each in systems())
    if joined is None:
        raise UsageError("no system of this job takes another trainer; start the run without --join")
    return joined


def _launched(run: Run, max_restarts: int, on_progress: OnProgress | None) -> Raw:
    """Train on ranks that this process starts on this machine."""
    pid: list[int] = []
    hear = _hearing(pid, on_progress)
    with passing_on_signals(pid), engine_for_ranks(run):
        ranks = local_ranks(run)
        started = first_of(each.launch(run, ranks, max_restarts, hear) for each in systems())
        if started is not None:
            return started
        for line in stand_in_note(run):
            hear({"note": line})
        results = launch(
            LOOP, {"run": run_to_raw(run)}, ranks=ranks, hosts=local_hosts(run, ranks), timeout_s=float("inf"),
            restarts=max_restarts, on_message=hear, names_modules=names_modules(run),
        )  # fmt: skip
    return results[0]


def _hearing(pid: list[int], on_progress: OnProgress | None) -> Callable[[Any], None]:
    """A handler for messages of a job. pid: is set to the process that signals are passed on to."""

    def hear(message: Any) -> None:
        if "pid" in message:
            pid[:] = [message["pid"]]
        elif on_progress is not None:
            on_progress(message)

    return hear


@contextmanager
def engine_for_ranks(run: Run) -> Generator[None]:
    """The Ray of this machine that feeds of all ranks share, if the run asks for Ray and names no cluster."""
    if run.data.engine == "ray" and run.data.ray_address is None:
        from recsmith.feeding.on_ray import ray_for_ranks

        with ray_for_ranks():
            yield
    else:
        yield


def join_and_train(run: Run, environment: dict[str, str]) -> Raw:
    """Join the launcher's job as a rank and train; return the result of the run."""
    if run.data.engine == "ray" and not (run.data.ray_address or os.environ.get("RAY_ADDRESS")):
        raise UsageError(
            "a launcher started this job and nobody says which Ray cluster feeds it; start one (ray start --head) and "
            "give its address as data.ray_address, or as RAY_ADDRESS"
        )
    import torch

    from recsmith.training.rank import train_on_rank

    os.environ.update(environment)
    warnings.simplefilter("ignore")  # PyTorch's warnings about what TorchRec uses; our own errors are raised
    local = int(environment["LOCAL_RANK"])
    on_gpu = torch.cuda.device_count() > local
    if on_gpu:
        torch.cuda.set_device(local)
    with as_host_rank():
        join_group("nccl" if on_gpu else "gloo")
        return train_on_rank(run_to_raw(run))


@contextmanager
def passing_on_signals(pid: list[int]) -> Generator[None]:
    """Within this context, pass SIGTERM and Ctrl-C on to the job's rank 0, which saves and ends.

    A second signal ends this process at once.
    """
    first: list[float] = []

    def pass_on(number: int, *_: object) -> None:
        if first and time.monotonic() - first[0] < TOGETHER_S:
            return
        if first:
            signal.signal(number, before[number])
            os.kill(os.getpid(), number)
        elif pid:
            first.append(time.monotonic())
            os.kill(pid[0], signal.SIGTERM)
        else:
            raise KeyboardInterrupt

    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, pass_on)
    except ValueError:  # not the main thread, so no handler can be set
        before.clear()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def dry_run(run: Run | Source, settings: tuple[str, ...] = ()) -> list[str]:
    """Lines that describe a run without starting it; raises what `train` would raise before its first step."""
    from recsmith.training.launch.dry_run import described

    return described(run, settings).lines
