"""Training of recommendation models on TorchRec: a run as a value, one loop, checkpoints that lose nothing.

from recsmith.training import Run, RunData, train

train(Run(data=RunData(train="criteo/train.tsv.gz", test="criteo/test.tsv.gz"), output="runs/first", ranks=2))

Names load when they are first used; settings of systems are shown here by the names of their nouns.
"""

from typing import TYPE_CHECKING, Any, get_args

from recsmith._late import late_names

if TYPE_CHECKING:
    from recsmith._types import noun
    from recsmith.scoring.scores import Scores
    from recsmith.training.launch.launching import train
    from recsmith.training.launch.ray_train import ray_trainer
    from recsmith.training.losses.settings import RunTask
    from recsmith.training.optimizers.settings import DenseOptimizer, OptimizerRule, RunOptimizers, SparseOptimizer
    from recsmith.training.results.deltas import apply_deltas, make_delta
    from recsmith.training.results.evaluation import evaluate
    from recsmith.training.results.onnx_serving import load_onnx
    from recsmith.training.results.serving import load_model
    from recsmith.training.run import (
        Checkpointing,
        Run,
        RunComms,
        RunMetrics,
        RunModel,
        RunTable,
        TableStart,
        load_run,
        run_from_raw,
        run_to_raw,
        save_run,
    )
    from recsmith.training.run.data import BatchChange, RunData
    from recsmith.training.seams.predicting import OpenRun, RunFacts, SystemLine
    from recsmith.training.seams.system import System

_core = late_names(__name__, {
    "recsmith._types": ("noun",),
    "recsmith.training.launch.launching": ("train",),
    "recsmith.training.launch.ray_train": ("ray_trainer",),
    "recsmith.training.losses.settings": ("RunTask",),
    "recsmith.training.optimizers.settings": ("DenseOptimizer", "OptimizerRule", "RunOptimizers", "SparseOptimizer"),
    "recsmith.training.results.deltas": ("apply_deltas", "make_delta"),
    "recsmith.training.results.evaluation": ("evaluate",),
    "recsmith.training.results.onnx_serving": ("load_onnx",),
    "recsmith.training.results.serving": ("load_model",),
    "recsmith.training.run": (
        "Checkpointing", "Run", "RunComms", "RunMetrics", "RunModel", "RunTable", "TableStart", "load_run",
        "run_from_raw", "run_to_raw", "save_run",
    ),
    "recsmith.training.run.data": ("BatchChange", "RunData"),
    "recsmith.scoring.scores": ("Scores",),
    "recsmith.training.seams.predicting": ("OpenRun", "RunFacts", "SystemLine"),
    "recsmith.training.seams.system": ("System",),
})  # fmt: skip

__all__ = [
    "BatchChange", "Checkpointing", "DenseOptimizer", "OpenRun", "OptimizerRule", "Run", "RunComms", "RunData",
    "RunFacts", "RunMetrics", "RunModel", "RunOptimizers", "RunTable", "RunTask", "Scores", "SparseOptimizer", "System",
    "SystemLine", "TableStart", "apply_deltas", "evaluate", "load_model", "load_onnx", "load_run", "make_delta", "noun",
    "ray_trainer", "run_from_raw", "run_to_raw", "save_run", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A name that is imported when it is first used, including the settings nouns of systems."""
    if name[:1].isupper() and name not in __all__:
        from recsmith.training.seams.registry import systems

        said = [noun for each in systems() for noun in (each.settings, *get_args(each.settings))]
        if shown := [noun for noun in said if getattr(noun, "__name__", "") == name]:
            return shown[0]
    return _core(name)
