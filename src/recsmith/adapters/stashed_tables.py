"""Tables that are stashed in host memory between steps: TorchRec's field `stash_weights` of their configurations."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torchrec.distributed.types import ModuleSharder

from recsmith.adapters.embedding_collections import Collection, collections, table_names
from recsmith.errors import PlanMismatch
from recsmith.plans import Placement, Plan

FIELD = "stash_weights"


def stash_tables(plan: Plan, module: nn.Module, *, sharders: Sequence[ModuleSharder[nn.Module]] | None = None) -> int:
    """Set `stash_weights` of a model's tables as a plan says; call it before sharding. Returns the number stashed.

    A job then trains with `TrainPipelineSparseDistEmbStash` of torchrec.distributed.train_pipeline. Its `site_fqn` is
    the layer before whose backward the weights return to the device.

    Raises:
        PlanMismatch: the plan lacks a table of the module, or TorchRec cannot stash what the plan asks for.
    """
    from torchrec.distributed.sharding_plan import get_default_sharders

    found = collections(module, sharders or get_default_sharders())
    placements, names = {each.table: each for each in plan.placements}, table_names(found)
    for collection, name, config in _configs(found):
        placed = placements.get(names[collection.path, name])
        if placed is None:
            raise PlanMismatch(f"the module has table '{name}' ({collection.path}), which the plan does not place")
        check_stash(placed)
        if placed.stash is not None and not hasattr(config, FIELD):
            raise PlanMismatch(f"table '{name}' rests in the plan, and the installed TorchRec has no {FIELD}")
    for collection, name, config in _configs(found):
        if hasattr(config, FIELD):
            setattr(config, FIELD, placements[names[collection.path, name]].stash is not None)
    return sum(each.stash is not None for each in plan.placements)


def check_stashed(found: Sequence[Collection], placements: Mapping[tuple[str, str], Placement]) -> None:
    """Refuse a model in which a table stashed by its placement is not configured so; placements: by (path, name)."""
    for collection, name, config in _configs(found):
        placed = placements[collection.path, name]
        check_stash(placed)
        if placed.stash is not None and not getattr(config, FIELD, False):
            raise PlanMismatch(
                f"table '{name}' rests in host memory in the plan, and its configuration has {FIELD}=False; call "
                "recsmith.torchrec.stash_tables(plan, model) before the model is sharded"
            )


def check_stash(placed: Placement) -> None:
    """Refuse to stash optimizer state: TorchRec cannot move the state of its fused kernels off the device."""
    if placed.stash == "weights_and_state":
        raise PlanMismatch(
            f"table '{placed.table}' has stash: weights_and_state, and TorchRec 1.8 moves weights of tables alone; "
            "plan with --stash weights"
        )


def _configs(found: Sequence[Collection]) -> list[tuple[Collection, str, Any]]:
    return [(collection, name, config) for collection in found for name, config in collection.configs.items()]
