"""Training of recommendation models on TorchRec: a run as a value, one loop, checkpoints that lose nothing.

from recsmith.training import Run, RunData, train

train(Run(data=RunData(train="criteo/train.tsv.gz", test="criteo/test.tsv.gz"), output="runs/first", ranks=2))

Names of what imports torch, and of systems, load when they are first used.
"""

from typing import TYPE_CHECKING

from recsmith._late import late_names
from recsmith._types import noun
from recsmith.training.optimizers.settings import DenseOptimizer, RunOptimizers, SparseOptimizer
from recsmith.training.run import (
    Checkpointing,
    Run,
    RunComms,
    RunMetrics,
    RunModel,
    RunTable,
    load_run,
    run_from_raw,
    run_to_raw,
    save_run,
)
from recsmith.training.run.data import BatchChange, RunData
from recsmith.training.scores import Scores
from recsmith.training.seams.system import OpenRun, RunFacts, System, SystemTold

if TYPE_CHECKING:
    from recsmith.training.launch.launching import train
    from recsmith.training.results.evaluation import evaluate
    from recsmith.training.results.serving import load_model
    from recsmith.training.systems.periods.settings import Periods

__getattr__ = late_names(__name__, {
    "recsmith.training.launch.launching": ("train",),
    "recsmith.training.results.evaluation": ("evaluate",),
    "recsmith.training.results.serving": ("load_model",),
    "recsmith.training.systems.periods.settings": ("Periods",),
})  # fmt: skip

__all__ = [
    "BatchChange", "Checkpointing", "DenseOptimizer", "OpenRun", "Periods", "Run", "RunComms", "RunData", "RunFacts",
    "RunMetrics", "RunModel", "RunOptimizers", "RunTable", "Scores", "SparseOptimizer", "System", "SystemTold",
    "evaluate", "load_model", "load_run", "noun", "run_from_raw", "run_to_raw", "save_run", "train",
]  # fmt: skip
