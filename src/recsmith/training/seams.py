"""The seams at which a run names its components, and those that are RecSmith's own, one line each; without torch.

What each of them has to do is said by `protocol.py` of its folder. Formats of data, collectives and optimizers are
registered beside their settings (data/dataset.py, collectives/, optimizers/).
"""

from recsmith._components import parsed, register

STEP, ROWS, WATCHER, UPDATE, TABLES = "step", "row store", "watcher", "update", "table module"
SECOND_ORDER = ("progressive_lbfgs", "dance")  # steps that take the place of the dense layers' optimizer
SPARSE_COPY = "sparse_copy"

register(STEP, "base", "recsmith.training.steps.pipelines:BasePipeline")
register(STEP, "sparse_dist", "recsmith.training.steps.pipelines:SparseDistPipeline")
register(STEP, "prefetch_sparse_dist", "recsmith.training.steps.pipelines:PrefetchPipeline")
register(STEP, "progressive_lbfgs", "recsmith.training.steps.second_order:ProgressiveLbfgsStep")
register(STEP, "dance", "recsmith.training.steps.second_order:DanceStep")
register(STEP, "search", "recsmith.training.steps.searching:SearchStep")

register(ROWS, "device", "recsmith.training.stores.device:DeviceRows")
register(ROWS, "tiered", "recsmith.training.stores.tiered:TieredRows")
register(ROWS, "split", "recsmith.training.stores.split:SplitRows")

register(WATCHER, "loss_guard", "recsmith.training.watchers.loss_guard:LossGuard")
register(WATCHER, "capture", "recsmith.training.watchers.capture:CaptureWatcher")
register(WATCHER, "function", "recsmith.training.watchers.functions:FunctionWatcher")
register(WATCHER, "anomalies", "recsmith.training.watchers.anomalies:AnomalyWatcher")
register(WATCHER, SPARSE_COPY, "recsmith.training.watchers.sparse_copies:SparseCopies")
register(WATCHER, "plan_watch", "recsmith.training.watchers.plan_watch:WatchedPlan")

register(UPDATE, "incremental", "recsmith.training.updates.passes:Incremental")
register(UPDATE, "window", "recsmith.training.updates.passes:WindowUpdate")
register(UPDATE, "auto", "recsmith.training.updates.auto:AutoUpdate")
register(UPDATE, "future_gradient", "recsmith.training.updates.future_gradient:FutureGradient")

register(TABLES, "plain", "recsmith.training.tables.plain:plain")
register(TABLES, "stored", "recsmith.training.tables.stored:StoredTables")
register(TABLES, "towers", "recsmith.training.tables.towers:TowerTables")
register(TABLES, "searched", "recsmith.training.tables.searched:SearchedTables")
register(TABLES, "deduplicated", "recsmith.training.tables.deduplicated:DeduplicatedTables")


def tables_rest(pipeline: object) -> bool:
    """Whether tables learn nothing under a run's `pipeline`."""
    name, settings = parsed(pipeline, "pipeline")
    return name == "dance" or (name in SECOND_ORDER and settings.get("tables") == "rest")
