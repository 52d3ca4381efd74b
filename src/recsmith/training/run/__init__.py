"""The run file: its keys with their defaults, and which parts of a run cannot be combined; without torch.

run.py is the run, data.py its data, tables.py its embedding tables. parts.py and refusals.py say which parts cannot be
combined. reference.py makes the schema and the reference of all keys, component_settings.py those of components.
"""

from recsmith.training.run.run import (
    BUILT_IN,
    MADE_HERE,
    SCHEMA,
    Checkpointing,
    Component,
    Run,
    RunComms,
    RunMetrics,
    RunModel,
    RunTable,
    TableStart,
    load_run,
    names_component,
    names_modules,
    run_from_raw,
    run_of_job,
    run_to_raw,
    save_run,
)

__all__ = [
    "BUILT_IN", "MADE_HERE", "SCHEMA", "Checkpointing", "Component", "Run", "RunComms", "RunMetrics",
    "RunModel", "RunTable", "TableStart", "load_run", "names_component", "names_modules", "run_from_raw", "run_of_job",
    "run_to_raw", "save_run",
]  # fmt: skip
