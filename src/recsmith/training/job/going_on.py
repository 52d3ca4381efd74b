"""A run that goes on from a checkpoint of its folder: from which, and whether it can.

A start asks, and a dry run asks the same.
"""

from collections.abc import Mapping, Set
from pathlib import Path

from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.training.job.card import check_maps
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan_rules import check_loadable
from recsmith.training.job.resuming import CHECKPOINTS, Saved, checkpoint_folders
from recsmith.training.job.sharded import table_of
from recsmith.training.optimizers.building import state_bytes
from recsmith.training.run import Run
from recsmith.training.seams import systems
from recsmith.training.seams.system import trains_layers
from recsmith.training.sources import check_state
from recsmith.workloads.optimizers import OPTIMIZERS


def newest_of(run: Run) -> Saved | None:
    """The newest complete checkpoint in a run's folder, from which it goes on; None where it begins anew."""
    found = checkpoint_folders(Path(run.output) / CHECKPOINTS) if run.checkpoint else []
    return Saved(found[-1]) if found else None


def newest_of_members(runs: Mapping[str, Run]) -> Saved | None:
    """The newest checkpoint that all members of an array have, as the first of them has it; None where there is none.

    Raises:
        UsageError: members were trained apart, and have no step in common.
    """
    folders = {name: Path(run.output) / CHECKPOINTS for name, run in runs.items() if run.checkpoint}
    if not folders:
        return None
    newest = newest_in_common(
        {name: {each.name for each in checkpoint_folders(folder)} for name, folder in folders.items()}
    )
    return Saved(next(iter(folders.values())) / newest) if newest else None


def newest_in_common(found: Mapping[str, Set[str]]) -> str | None:
    """The newest checkpoint that every member has, by the name of its folder; None where there is none yet.

    found: the names of those of each member.

    Raises:
        UsageError: members were trained apart, and have no step in common.
    """
    common = set.intersection(*map(set, found.values()))
    without = next((name for name, steps in found.items() if not steps), None)
    most = max(found, key=lambda name: len(found[name]))
    if not common and (without is None or len(found[most]) > 1):
        lacks = f"'{without}' has none" if without else "each has others"
        raise UsageError(
            f"the members of the array have no checkpoint of one step in common: {lacks}, and '{most}' has "
            f"{len(found[most]):,} up to {max(found[most])}; train that one as a run of its own, or give another output"
        )
    return max(common, default=None)


def check_goes_on(parts: Unsharded, saved: Saved, plan: Plan, ranks: int) -> None:
    """Refuse a run whose towers, plan or data are not those of the checkpoint that it would go on from.

    Raises:
        UsageError: towers, maps, plan, or the order or periods of the data are others.
        CorruptFile: the data are others, or the checkpoint is damaged.
    """
    run, progress = parts.run, saved.progress
    check_maps(run.model, Path(run.output))
    for system in systems():
        system.check_goes_on(saved.run, run)
    check_loadable(saved.plan, plan)
    size, _ = run.data.batch_sizes(ranks).at(progress["step"])
    check_state(parts.source, progress["position"], ranks, size)


def check_job(run: Run, saved: Saved, parts: Unsharded) -> None:
    """Refuse, before anything is sharded, another model or another optimizer than the checkpoint's. run: decided.

    What only shards can tell, `Saved.load` refuses.

    Raises:
        CorruptFile: the checkpoint is of others, or damaged.
    """
    weights = {
        name: (tuple(each.shape), str(each.dtype).removeprefix("torch.") if table_of(name) else None)
        for name, each in parts.task.state_dict().items()
    }  # an optimizer may keep dense layers in another form
    kept = {"dense": state_bytes(run.optimizers.dense), "sparse": OPTIMIZERS[run.optimizers.sparse.name].fused_states}
    saved.check_job(run, weights, [group for group, some in kept.items() if some and not trains_layers(run)])
