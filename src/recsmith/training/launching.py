"""Starts a run: joins a launcher's job where there is one, and launches this machine's devices elsewhere.

A dry run says what would happen: its plan, memory of each rank, the predicted step, what is written. Nothing is.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._components import parsed
from recsmith.adapters.installed import require_torchrec
from recsmith.costs.fetches import AHEAD, disk_fetches
from recsmith.errors import UsageError
from recsmith.files import Raw, Source
from recsmith.jobs.launch import launch
from recsmith.jobs.processes import TOGETHER_S
from recsmith.jobs.worker import join_group
from recsmith.plans import Plan, load_plan
from recsmith.prediction.servers import remote_lines
from recsmith.training.arrays.members import members_of, trained_runs
from recsmith.training.log import starting_lines
from recsmith.training.prerequisites import check_memory_limit, check_run, own_modules
from recsmith.training.remote.parts import check_servers, listening_line, run_of_servers, shares_line
from recsmith.training.run import Run, load_run, names_modules, run_to_raw
from recsmith.training.watchers.alarm_log import slow_trainer_of_run
from recsmith.training.watchers.anomaly_settings import watch_settings
from recsmith.units import format_size, format_time

LOOP = "recsmith.training.loop:train_on_rank"
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # environment that torchrun and others set
SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
MEETING = ("MASTER_ADDR", "MASTER_PORT")  # where ranks meet, which srun does not say
WEIGHT_BYTES = 4  # of a dense parameter; Adam keeps two more of them beside it, and DDP its gradient
OnProgress = Callable[[Any], object]


def train(
    run: Run | Source, *, settings: tuple[str, ...] = (), max_restarts: int = 0, join: bool = False,
    on_progress: OnProgress | None = None,
) -> Raw:  # fmt: skip
    """Train a run; what came of it: step, whether it is complete, scores on data.test.

    run: a Run or its file. settings: 'key=value' over it. max_restarts: how often ranks that failed are started again
    from the newest checkpoint. join: be one more trainer of the job with servers that runs in the run's folder.
    on_progress(message): hears of notes and steps, which `progress_text` makes lines of.

    Under torchrun, SLURM's srun or another launcher that sets their variables this process becomes a rank of that
    job. Elsewhere a job of this machine's ranks starts. A run that was ended goes on from its newest checkpoint.

    Raises:
        UsageError: the run, its data or its plan break a rule.
        MissingExtra: torch is not installed, or TensorBoard where the run wants it.
        RecSmithError: a rank failed.
    """
    made = load_run(run, settings)
    require_torchrec()
    environment = launcher_environment()
    check_memory_limit(made, starts_ranks=environment is None)
    with own_modules(made, run):
        for each in trained_runs(made):
            check_run(each, int(environment["LOCAL_RANK"]) + 1 if environment else local_ranks(made))
        if join:
            from recsmith.training.remote.hosting import join_remote

            return join_remote(made, lambda message: None if on_progress is None else _heard(message, on_progress))
        return _launched(made, max_restarts, on_progress) if environment is None else join_and_train(made, environment)


def _heard(message: Any, on_progress: OnProgress) -> None:
    if "pid" not in message:
        on_progress(message)


def _launched(run: Run, max_restarts: int, on_progress: OnProgress | None) -> Raw:
    """Train on ranks of this machine, which this process starts."""
    pid: list[int] = []

    def hear(message: Any) -> None:
        if "pid" in message:
            pid[:] = [message["pid"]]
        elif on_progress is not None:
            on_progress(message)

    with passing_on_signals(pid), engine_for_ranks(run):
        if run.remote is not None:
            if max_restarts:
                raise UsageError(
                    "--max-restarts starts all ranks again, and a job with remote goes on without a trainer that "
                    "fails; leave it out"
                )
            from recsmith.training.remote.hosting import train_remote

            return train_remote(run, local_ranks(run), hear)
        results = launch(
            LOOP, {"run": run_to_raw(run)}, ranks=local_ranks(run), timeout_s=float("inf"), restarts=max_restarts,
            on_message=hear, names_modules=names_modules(run),
        )  # fmt: skip
    return results[0]


@contextmanager
def engine_for_ranks(run: Run) -> Generator[None]:
    """What the ranks' feeds share: a Ray of this machine, where the run asks for one and names no cluster."""
    if run.data.engine == "ray" and run.data.ray_address is None:
        from recsmith.feeding.on_ray import ray_for_ranks

        with ray_for_ranks():
            yield
    else:
        yield


def launcher_environment() -> dict[str, str] | None:
    """What a launcher says of this process: RANK, WORLD_SIZE, LOCAL_RANK; None where none started it.

    Raises:
        UsageError: srun started it, and nobody says where ranks meet; or RANK and WORLD_SIZE are set alone.
    """
    if all(name in os.environ for name in LAUNCHED):
        return {name: os.environ[name] for name in LAUNCHED}
    if "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        missing = [name for name in MEETING if name not in os.environ]
        if missing:
            raise UsageError(
                f"srun started this job and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set; "
                "export MASTER_ADDR (the first host of the job) and MASTER_PORT (docs/train.md)"
            )
        return {name: os.environ[word] for name, word in SLURM.items()}
    if "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError(
            f"RANK is {os.environ['RANK']}, WORLD_SIZE is {os.environ['WORLD_SIZE']} and LOCAL_RANK is not set; export "
            "LOCAL_RANK too, the number of this process on its machine from 0, as torchrun does; or unset RANK and "
            "WORLD_SIZE to train on this machine alone"
        )
    return None


def local_ranks(run: Run) -> int:
    """Processes that a run gets on this machine: as it says, one a GPU, as many as its plan has, or one."""
    import torch

    if run.ranks is not None:
        return run.ranks
    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return load_plan(run.plan).cluster.job_world_size if run.plan not in ("auto", "torchrec") else 1


def join_and_train(run: Run, environment: dict[str, str]) -> Raw:
    """Join the launcher's job, train, and end this process as TorchRec on gloo must end; rank 0 prints the result."""
    if run.data.engine == "ray" and not (run.data.ray_address or os.environ.get("RAY_ADDRESS")):
        raise UsageError(
            "a launcher started this job and nobody says which Ray cluster feeds it; start one (ray start --head) and "
            "give its address as data.ray_address, or as RAY_ADDRESS"
        )
    import torch

    from recsmith.training.loop import train_on_rank

    os.environ.update(environment)
    warnings.simplefilter("ignore")  # PyTorch's, of what TorchRec uses; our own errors are raised
    local = int(environment["LOCAL_RANK"])
    on_gpu = torch.cuda.device_count() > local
    if on_gpu:
        torch.cuda.set_device(local)
    join_group("nccl" if on_gpu else "gloo")
    return train_on_rank(run_to_raw(run))


@contextmanager
def passing_on_signals(pid: list[int]) -> Generator[None]:
    """SIGTERM and Ctrl-C go to the job's rank 0 within, which saves and ends the job; a later one ends it at once."""
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
    except ValueError:  # not in the main thread, where no handler can be set
        before.clear()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def dry_run(run: Run | Source, settings: tuple[str, ...] = ()) -> list[str]:
    """Lines about a run that is not started; data is opened and a batch of it read.

    Raises what `train` would raise before its first step.
    """
    made = load_run(run, settings)
    require_torchrec()
    with own_modules(made, run):
        return _described(made) if made.array is None else _described_array(made)


def _described_array(made: Run) -> list[str]:
    """What a run with an array would do: together, or as the first of its members does."""
    import torch

    from recsmith.adapters.topology import device_type
    from recsmith.training.arrays.model import unsharded_array, weighed
    from recsmith.training.arrays.sharding import member_plan, wide_tables, with_members
    from recsmith.training.plan import plan_here
    from recsmith.training.sources import open_source
    from recsmith.verifying.jobs import predicted_bytes

    source, members = open_source(made), members_of(made)
    first = next(iter(members))
    environment = launcher_environment()
    ranks = int(environment["WORLD_SIZE"]) if environment else local_ranks(made)
    gain, lines = weighed(made, source, ranks, torch.device(device_type()))
    if not gain.together:
        return [*lines, f"of each member, such as '{first}':", *_described(members[first])]
    for each in members.values():
        check_run(each, int(environment["LOCAL_RANK"]) + 1 if environment else ranks)
    array = unsharded_array(made, source)
    plan = with_members(plan_here(wide_tables(array), ranks, ranks), array.members)
    needed = [shards + base for shards, base in predicted_bytes(plan)]
    size = _checkpoint_bytes(member_plan(plan, array.members[0]), array.parts.parameters // len(members))
    kept = f"checkpoints of about {format_size(size)} each" if made.checkpoint else "no checkpoints"
    return [
        *lines,
        *starting_lines(made, plan, parameters=array.parts.parameters, samples=source.length),
        f"memory for embeddings at the peak of a step, by rank: {', '.join(map(format_size, needed))} "
        "(on CPU; not counted: the program itself and the dense layers)",
        f"written to '{made.output}/MEMBER' of each ({', '.join(members)}): run.json, plan.json, log.jsonl, {kept}, "
        "model; nothing is downloaded",
        *source.notes(made.data.batch_sizes(ranks), ranks, None),
    ]


def _described(made: Run) -> list[str]:
    """What a run would do, when its modules are found."""
    from recsmith.adapters.topology import device_type
    from recsmith.planning.simulate import simulate
    from recsmith.training.collectives import decided
    from recsmith.training.models import unsharded
    from recsmith.training.narrowing.deciding import with_narrow
    from recsmith.training.plan import plan_here, with_collections
    from recsmith.training.refusals import check_together, layer_parts, placed_parts
    from recsmith.training.sharded import dense_shapes, numbers_across, with_optimizer
    from recsmith.training.sources import open_data, total_steps
    from recsmith.training.tables.tower_parts import tower_lines
    from recsmith.verifying.jobs import predicted_bytes

    environment = launcher_environment()
    ranks = int(environment["WORLD_SIZE"]) if environment else local_ranks(made)
    check_run(made, int(environment["LOCAL_RANK"]) + 1 if environment else ranks)
    parts, towers = unsharded(made), tower_lines(made)
    made = parts.run
    if made.data.test is not None:
        open_data(made.data.test, "data.test")
    planned, holders = parts, ranks
    if made.remote is not None:
        holders = made.remote.servers
        planned = replace(parts, run=run_of_servers(made, ranks, holders))
    plan = with_collections(plan_here(planned, holders, holders), made, parts.task)
    made, narrowed = with_narrow(made, parts, plan)
    check_together([*placed_parts(made, plan, device_type()), *layer_parts(made, dense_shapes(parts.task))])
    needed = [shards + base for shards, base in predicted_bytes(plan)]
    steps = total_steps(made, parts.source, ranks)
    step, size = simulate(plan).cost.total_s, _checkpoint_bytes(plan, parts.parameters)
    return [
        *starting_lines(made, plan, parameters=parts.parameters, samples=parts.source.length, ranks=ranks),
        *towers,
        *_of_servers(made, plan, ranks, step),
        *decided(made.comms, plan, numbers_across(parts.task, plan))[1],
        *with_optimizer(made, plan, parts.task)[1],
        *narrowed,
        f"memory for embeddings at the peak of a step, by rank: {', '.join(map(format_size, needed))} "
        "(on CPU; not counted: the program itself and the dense layers)",
        f"embeddings take {format_time(step)} of a step under the plan's cost model ({plan.cost_model}), on "
        f"{plan.cluster.device.name} and its links as the plan knows them",
        *_from_disk(made, plan),
        f"written to '{Path(made.output)}': run.json, plan.json, log.jsonl, "
        + (f"checkpoints of {format_size(size)} each ({made.checkpoint.keep} kept), "
           if made.checkpoint else "no checkpoints, ")
        + "model; nothing is downloaded",
        *parts.source.notes(made.data.batch_sizes(ranks), ranks, None),
        *_watched(made, parts.source.schema.feature_names, steps),
    ]  # fmt: skip


def _of_servers(made: Run, plan: Plan, trainers: int, step_s: float) -> list[str]:
    """What servers of tables would hold and cost, and would have brought the run before."""
    stale = made.remote is not None and made.remote.staleness > 0
    slow = None if stale else slow_trainer_of_run(made.output)
    told = [] if slow is None else [f"in the run before, {slow}"]
    if made.remote is None:
        return told
    check_servers(plan)
    lines = remote_lines(plan, made.data.local_batch_size(trainers), trainers, step_s)
    return [*listening_line(made), *lines, *([] if stale else shares_line(made, trainers)), *told]


def _from_disk(made: Run, plan: Plan) -> list[str]:
    """What the rows of tables that the plan keeps on disk take of a step, and whether the run's pipeline hides it."""
    found = disk_fetches(plan)
    if found is None:
        return []
    taken = f"rows come from disk for {format_time(found.longest_s)} of it"
    if made.pipeline != "auto" and parsed(made.pipeline, "pipeline")[0] == AHEAD:
        return [f"{taken}, beside the step before (pipeline {AHEAD}): {format_time(found.ahead_s)} in place of it"]
    return [f"{taken}; pipeline: {AHEAD} would fetch them beside the step before: {format_time(found.ahead_s)}"]


def _watched(made: Run, features: Sequence[str], steps: int | None) -> list[str]:
    """From when on `watch` could tell something."""
    settings = watch_settings(made.watch)
    if settings is None:
        return []
    settings.check_features(features)
    return [f"watch: {settings.told_from(steps)}"]


def _checkpoint_bytes(plan: Plan, parameters: int) -> int:
    state = {"sgd": 0.0, "adagrad": 1.0, "rowwise_adagrad": 1 / 16, "adam": 2.0, "lamb": 2.0}
    return int(parameters * WEIGHT_BYTES * (1 + state.get(plan.workload.optimizer, 1.0)))
