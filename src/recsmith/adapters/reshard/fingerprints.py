"""The file of a checkpoint that names the plan under which it was written: recsmith.json."""

import json
from pathlib import Path

from recsmith._types import Source
from recsmith.adapters.reshard.layout import fingerprint
from recsmith.errors import CorruptFile, PlanMismatch, UsageError
from recsmith.files import check_schema, parse_json, read_text, source_text, write_text
from recsmith.plans import Plan, load_plan

FINGERPRINT = "recsmith.json"
SCHEMA = "recsmith/checkpoint/1"


def tie_checkpoint(checkpoint: Source, plan: Plan | Source) -> None:
    """Write into a checkpoint's folder under which plan it was saved; call it on one rank, after the save.

    `recsmith reshard` then refuses any plan with other shards; without it, only one whose shards have other shapes.

    Raises:
        UsageError: the folder does not exist, or cannot be written to.
    """
    folder = Path(source_text(checkpoint, "a folder"))
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is no folder; save the checkpoint first")
    write_fingerprint(folder, load_plan(plan))


def write_fingerprint(folder: Path, plan: Plan) -> None:
    """Write the file."""
    raw = {"schema": SCHEMA, "fingerprint": fingerprint(plan), "plan": plan.digest}
    write_text(str(folder / FINGERPRINT), json.dumps(raw, indent=1) + "\n")


def check_fingerprint(folder: Path, plan: Plan) -> None:
    """Refuse a plan under which the checkpoint was not written, where the checkpoint says so."""
    path = folder / FINGERPRINT
    if not path.exists():
        return
    raw = parse_json(read_text(str(path)), str(path))
    found = check_schema(raw, SCHEMA, str(path)).get("fingerprint") if isinstance(raw, dict) else None
    if not isinstance(found, str):
        raise CorruptFile(f"'{path}' names no fingerprint; delete it, then the shards alone are compared")
    if found != fingerprint(plan):
        raise PlanMismatch(
            f"'{folder}' was written under a plan with other shards than the old plan: its fingerprint is "
            f"{found[:12]}, the plan's {fingerprint(plan)[:12]}; give the plan that the job ran, or delete '{path}' to "
            "compare the shapes of shards alone"
        )
