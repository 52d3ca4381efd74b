"""The seams at which a run names its components, and those that are the core's own, one line each; without torch.

What each of them has to do is said by `protocol.py` of its folder. A system registers its own in its record. Formats of
data, collectives and optimizers are registered beside their settings (data/dataset.py, collectives/, optimizers/).
"""

from recsmith._components import register
from recsmith.training.seams.registry import systems
from recsmith.training.seams.system import PREDICTED, ROWS, STEP, TABLES, UPDATE, WATCHER

__all__ = ["PREDICTED", "ROWS", "STEP", "TABLES", "UPDATE", "WATCHER", "systems"]

register(STEP, "base", "recsmith.training.steps.pipelines:BasePipeline")
register(STEP, "sparse_dist", "recsmith.training.steps.pipelines:SparseDistPipeline")
register(STEP, "prefetch_sparse_dist", "recsmith.training.steps.pipelines:PrefetchPipeline")
register(STEP, "accumulated", "recsmith.training.steps.accumulated:AccumulatedStep")
register(ROWS, "device", "recsmith.training.stores.device:DeviceRows")
register(WATCHER, "loss_guard", "recsmith.training.watchers.loss_guard:LossGuard")
register(WATCHER, "early_stopping", "recsmith.training.watchers.early_stopping:EarlyStopping")
register(WATCHER, "mlflow", "recsmith.training.watchers.mlflow_runs:MlflowRuns")
register(WATCHER, "wandb", "recsmith.training.watchers.wandb_runs:WandbRuns")
register(WATCHER, "capture", "recsmith.training.watchers.capture:CaptureWatcher")
register(WATCHER, "function", "recsmith.training.watchers.functions:FunctionWatcher")
register(TABLES, "plain", "recsmith.training.tables.plain:plain")

systems()  # whose components have names, too
