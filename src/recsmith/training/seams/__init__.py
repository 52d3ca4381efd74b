"""The interfaces at which a run names components, and RecSmith's own components, one line each; without torch.

`protocol.py` in each folder says what a component has to do. A system registers its own components in its record.
Formats of data, collectives and optimizers are registered next to their settings (data/dataset.py, collectives/,
optimizers/).
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

systems()  # loading the systems registers their components, too
