"""Runs a computation on rank 0 only and gives its result, or its error, to every rank of a job."""

import json
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from recsmith.errors import CorruptFile, Infeasible, NoPlanFound, PlanMismatch, RecSmithError, UsageError

KINDS = {kind.__name__: kind for kind in (CorruptFile, Infeasible, NoPlanFound, PlanMismatch)}


def from_rank_0(make: Callable[[], dict[str, Any]], group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """What `make` returns on rank 0, on every rank: JSON data, sent as text. A collective call.

    Raises:
        RecSmithError: `make` raised it on rank 0; every rank raises it, so that no rank waits for the others. Its class
            is that of rank 0 if that is one of KINDS, else UsageError.
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
