"""What a run file says, with every default, and which parts of it do not go together; without torch.

run.py is the run, data.py where its samples come from, tables.py its embedding tables. parts.py and refusals.py say
what does not go together. reference.py makes the schema and the reference of all keys, component_settings.py those of
components.
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
