"""What rank 0 alone works out, on every rank of a job."""

import json
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from recsmith.errors import CorruptFile, Infeasible, NoPlanFound, PlanMismatch, RecSmithError, UsageError

KINDS = {kind.__name__: kind for kind in (CorruptFile, Infeasible, NoPlanFound, PlanMismatch)}


def from_rank_0(make: Callable[[], dict[str, Any]], group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """What `make` returns on rank 0, on every rank: JSON data, sent as text. A collective call.

    Raises:
        RecSmithError: rank 0 met it; every rank raises it, so that none waits. Of the class that rank 0 met where that
            says something of plans or files, else a UsageError.
    """
    sent: list[str | None] = [None]
    if dist.get_rank(group) == 0:
        try:
            sent = [json.dumps({"answer": make()})]
        except RecSmithError as error:
            sent = [json.dumps({"error": type(error).__name__, "message": str(error)})]
    dist.broadcast_object_list(sent, group=group, group_src=0)
    received = json.loads(sent[0] or "{}")
    if "error" in received:
        raise KINDS.get(received["error"], UsageError)(received["message"])
    return received["answer"]
