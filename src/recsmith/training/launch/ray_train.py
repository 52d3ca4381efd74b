"""A run as a trainer of Ray Train: `ray_trainer(run, workers=8).fit()`. Ray is imported when one is made.

Each worker of Ray Train is a rank: Ray starts it on a node, sets torchrun's variables and joins the process group. When
a worker or a node is lost, Ray starts all workers again, and they go on from the newest checkpoint of the run's output,
as after any other end. So the output has to be a folder that all nodes see.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from recsmith._install import RAY
from recsmith.errors import MissingExtra, UsageError
from recsmith.files import Raw, Source
from recsmith.training.launch.manifests import shape_of
from recsmith.training.launch.prerequisites import check_run
from recsmith.training.run import MADE_HERE, Run, load_run, run_of_job, run_to_raw

REPORTED = ("step", "complete")  # of what came of a run: what Ray keeps as metrics, beside scores on data.test


def ray_trainer(
    run: Run | Source, *, settings: Sequence[str] = (), workers: int | None = None, gpus: bool = True,
    restarts: int = 3, resources: Mapping[str, float] | None = None,
) -> Any:  # fmt: skip
    """A `ray.train.torch.TorchTrainer` of a run; `fit()` trains it on a Ray cluster.

    Args:
        run: a Run or its file; its paths are those that the nodes see.
        settings: 'key=value' over it.
        workers: ranks; None: as many as its plan has, or as the run says.
        gpus: give each worker one GPU, and gloo's place to nccl.
        restarts: how often all workers start again after one was lost.
        resources: of each worker beside the GPU, such as {"CPU": 4}.

    Raises:
        MissingExtra: Ray is not installed.
        UsageError: nobody says how many workers there are, or others than the plan's are asked for.
    """
    if find_spec("ray") is None:
        raise MissingExtra(f"a trainer of Ray Train needs Ray: {RAY}")
    made = load_run(run, tuple(settings))
    count = workers_of(made, workers)
    train: Any = import_module("ray.train")
    torch_of_ray: Any = import_module("ray.train.torch")
    scaling: dict[str, Any] = {} if resources is None else {"resources_per_worker": dict(resources)}
    return torch_of_ray.TorchTrainer(
        train_on_worker, train_loop_config={"run": run_to_raw(made)},
        torch_config=torch_of_ray.TorchConfig(backend="nccl" if gpus else "gloo"),
        scaling_config=train.ScalingConfig(num_workers=count, use_gpu=gpus, **scaling),
        run_config=train.RunConfig(failure_config=train.FailureConfig(max_failures=restarts)),
    )  # fmt: skip


def workers_of(run: Run, asked: int | None) -> int:
    """How many ranks a run has: as asked, as its plan has, or as it says; UsageError where none of them says it."""
    nodes, per_node = shape_of(run, None, asked if run.plan in MADE_HERE else None)
    if asked not in (None, nodes * per_node):
        raise UsageError(
            f"plan '{run.plan}' is of {nodes * per_node} ranks, and the trainer is to have {asked} workers; leave "
            "workers out, or plan for those"
        )
    return nodes * per_node


def train_on_worker(asked: Raw) -> None:
    """Train a run on a worker of Ray Train, whose process group is there already; Ray hears what came of it."""
    result = train_in_group(asked["run"])
    report: Any = import_module("ray.train").report
    report({key: result[key] for key in REPORTED if key in result} | {"test": result.get("test")})


def train_in_group(run: Raw) -> Raw:
    """Train a run on this rank of a process group that somebody else has made, in whatever thread; what came of it."""
    from recsmith.training.rank import train_on_rank

    check_run(run_of_job(run), int(os.environ.get("LOCAL_RANK", "0")) + 1)
    return train_on_rank(run)
