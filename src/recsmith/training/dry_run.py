"""What a run would do: its plan, memory of each rank, the predicted step, what is written. Nothing is."""

from pathlib import Path
from typing import Any

from recsmith.adapters.installed import require_torchrec
from recsmith.files import Source
from recsmith.plans import Plan
from recsmith.training.launching import launcher_environment, local_ranks
from recsmith.training.prerequisites import check_machine
from recsmith.training.reading import load_run
from recsmith.training.run import Run
from recsmith.units import format_size, format_time

WEIGHT_BYTES = 4  # of a dense parameter; Adam keeps two more of them beside it, and DDP its gradient


def dry_run(run: Run | Source, settings: tuple[str, ...] = ()) -> list[str]:
    """Lines about a run that is not started; data is opened and a batch of it read.

    Raises what `train` would raise before its first step.
    """
    made = load_run(run, settings)
    require_torchrec()
    from recsmith.planning.simulate import simulate
    from recsmith.training.datasets import open_data
    from recsmith.training.models import build_task
    from recsmith.training.planned import check_sequences, with_collections
    from recsmith.training.starting import plan_here, starting_words
    from recsmith.training.tables.dedup_parts import deduplication_of
    from recsmith.verifying.jobs.predicted_memory import predicted_bytes

    environment = launcher_environment()
    ranks = int(environment["WORLD_SIZE"]) if environment else local_ranks(made)
    check_machine(made, int(environment["LOCAL_RANK"]) + 1 if environment else ranks)
    dataset = open_data(made.data.train, "data.train")
    if made.data.test is not None:
        open_data(made.data.test, "data.test")
    task = build_task(made.model, dataset.schema, made.seed, deduplication=deduplication_of(made, dataset))
    plan = with_collections(plan_here(made, task, dataset, ranks, ranks), made, task)
    check_sequences(plan)
    needed = [shards + base for shards, base in predicted_bytes(plan)]
    step = simulate(plan).cost.total_s
    return [
        *starting_words(made, task, plan, dataset),
        f"memory for embeddings at the peak of a step, by rank: {', '.join(map(format_size, needed))} "
        "(on CPU; not counted: the program itself and the dense layers)",
        f"embeddings take {format_time(step)} of a step under the plan's cost model ({plan.cost_model}), on "
        f"{plan.cluster.device.name} and its links as the plan knows them",
        f"written to '{Path(made.output)}': run.json, plan.json, log.jsonl, "
        + (f"checkpoints of {format_size(_checkpoint_bytes(plan, task))} each ({made.checkpoint.keep} kept), "
           if made.checkpoint else "no checkpoints, ")
        + "model; nothing is downloaded",
    ]  # fmt: skip


def _checkpoint_bytes(plan: Plan, task: Any) -> int:
    tables = sum(parameter.numel() for parameter in task.parameters()) * WEIGHT_BYTES
    state = {"sgd": 0.0, "adagrad": 1.0, "rowwise_adagrad": 1 / 16, "adam": 2.0, "lamb": 2.0}
    return int(tables * (1 + state.get(plan.workload.optimizer, 1.0)))
