"""A run as a trainer of Ray Train: `ray_trainer(run, workers=8).fit()`. Ray is imported when a trainer is made.

Each worker of Ray Train is a rank: Ray starts it on a node, sets torchrun's variables and joins the process group. When
a worker or a node is lost, Ray restarts all workers, and they continue from the newest checkpoint in the run's output,
as after any interruption. So the output has to be a folder that all nodes can access.
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

REPORTED = ("step", "complete")  # keys of a run's result that Ray keeps as metrics, in addition to scores on data.test


def ray_trainer(
    run: Run | Source, *, settings: Sequence[str] = (), workers: int | None = None, gpus: bool = True,
    restarts: int = 3, resources: Mapping[str, float] | None = None,
) -> Any:  # fmt: skip
    """A `ray.train.torch.TorchTrainer` of a run; `fit()` trains it on a Ray cluster.

    Args:
        run: a Run or its file; its paths are resolved on the nodes.
        settings: 'key=value' settings applied to the run.
        workers: number of ranks; None: as many as its plan has, or as the run says.
        gpus: whether each worker has one GPU and uses nccl; otherwise workers use gloo.
        restarts: how often all workers are restarted after one was lost.
        resources: resources of each worker in addition to the GPU, such as {"CPU": 4}.

    Raises:
        MissingExtra: Ray is not installed.
        UsageError: the number of workers is not given anywhere, or differs from the plan's.
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
    """Number of ranks of a run: as asked, as its plan has, or as the run says; UsageError if none of them gives it."""
    nodes, per_node = shape_of(run, None, asked if run.plan in MADE_HERE else None)
    if asked not in (None, nodes * per_node):
        raise UsageError(
            f"plan '{run.plan}' is of {nodes * per_node} ranks, and the trainer is to have {asked} workers; leave "
            "workers out, or plan for those"
        )
    return nodes * per_node


def train_on_worker(asked: Raw) -> None:
    """Train a run on a worker of Ray Train, whose process group exists already, and report the result to Ray."""
    result = train_in_group(asked["run"])
    report: Any = import_module("ray.train").report
    report({key: result[key] for key in REPORTED if key in result} | {"test": result.get("test")})


def train_in_group(run: Raw) -> Raw:
    """Train a run on this rank of an existing process group, in any thread, and return the result."""
    from recsmith.training.rank import train_on_rank

    check_run(run_of_job(run), int(os.environ.get("LOCAL_RANK", "0")) + 1)
    return train_on_rank(run)
