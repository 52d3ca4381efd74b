"""The workload to train: features, embedding tables, batch size and optimizer; and workload files."""

from recsmith.workloads.access import AccessProfile
from recsmith.workloads.dynamic import Dynamic
from recsmith.workloads.files import (
    WORKLOAD_FILE,
    builtins,
    load_workload,
    save_workload,
    workload_from_raw,
    workload_schema,
    workload_to_raw,
)
from recsmith.workloads.workload import Feature, Table, Workload, check_name

__all__ = [
    "WORKLOAD_FILE", "AccessProfile", "Dynamic", "Feature", "Table", "Workload", "builtins", "check_name",
    "load_workload", "save_workload", "workload_from_raw", "workload_schema", "workload_to_raw",
]  # fmt: skip
