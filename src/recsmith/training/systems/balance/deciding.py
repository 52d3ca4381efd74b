"""By what work samples are dealt to ranks, what that brings in the first step of the data, and whether it pays.

W ranks, B samples of each in a step
"""

from dataclasses import replace
from typing import Any

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.dealing import Deal, busiest, dealt
from recsmith.data.source import by_rows
from recsmith.training.models import sequence_settings
from recsmith.training.models.work import layer_work
from recsmith.training.seams.system import OpenRun
from recsmith.training.sources import first_lengths
from recsmith.training.sources.dataset import DatasetSource

PAYS = 1.2  # busiest rank over the mean, from which `auto` deals: jobs gained nothing at 1.14, and a fifth at 1.3


@noun
class WorkOfRanks:
    """The work of the busiest rank over the mean in the first step of a run: as samples are stored, and when dealt."""

    stored: float
    dealt: float


def deal_of(run: Any) -> Deal | None:
    """By what work the samples of a run are dealt: as it says, or as its model has it; None of other models."""
    if isinstance(run.data.balance, Deal):
        return run.data.balance
    settings = sequence_settings(run.model.name, run.model.arguments)
    if settings is None:
        return None
    longest = np.array([settings.longest])
    work = layer_work(settings, run.model.embedding_dim, lengths=longest, others=0, labels=1)
    return Deal(feature=settings.history[0], squared=work.pair_work, longest=settings.longest)


def spread_of(deal: Deal, lengths: Ints, ranks: int) -> WorkOfRanks:
    """What the ranks have to do in a step. lengths: of its histories, in the order in which they are stored."""
    work = deal.work(lengths)
    return WorkOfRanks(
        stored=busiest(work, _cut(len(work), ranks), ranks), dealt=busiest(work, dealt(work, ranks), ranks)
    )


def _cut(count: int, ranks: int) -> Ints:
    """The rank of each sample where they are shared as they are stored."""
    return np.repeat(np.arange(ranks), np.diff(np.arange(ranks + 1) * count // ranks))


def decided(made: OpenRun, key: str) -> OpenRun:
    """The run with what `auto` decided, its step as the busiest rank makes it, and a line that says so."""
    run, source, said = made.run, made.parts.source, made.run.data.balance
    ranks = made.priced.cluster.world_size
    deal = deal_of(run) if isinstance(source, DatasetSource) else None
    if deal is None or (said is None and (made.step is None or ranks == 1)):
        return made
    if ranks == 1:
        return _without(made, said).telling(key, False, ["balance: off, since one rank has all samples of a step"])
    lengths = made.lengths
    if lengths is None:
        lengths = first_lengths(source, deal.feature, ranks, run.data.local_batch_size(ranks))
    found = spread_of(deal, lengths, ranks)
    why_not = _why_not(source, found) if said == "auto" else None
    deals = said is not None and why_not is None
    step = made.step and replace(made.step, layers_s=made.step.layers_s * (found.dealt if deals else found.stored))
    made = replace(made, step=step)
    if said is None:
        return made
    line = (
        f"balance: {why_not}" if why_not else
        f"balance: in the first step the busiest of {ranks} ranks has {found.dealt:.3f} times the mean work of "
        f"histories; it would have {found.stored:.2f} times as samples are stored"
    )  # fmt: skip
    return (made if deals else _without(made, said)).telling(key, deals, [line])


def _why_not(source: DatasetSource, found: WorkOfRanks) -> str | None:
    """Why dealing does not pay."""
    if found.stored < PAYS:
        return (
            f"off, since the busiest rank has {found.stored:.2f} times the mean work of histories in the first step, "
            f"and dealing pays from {PAYS:g} times on"
        )
    if by_rows(source.dataset.source) is None:
        return (
            "off, since this format reads whole blocks, so that every rank would read those of all (the busiest "
            f"has {found.stored:.2f} times the mean work of histories in the first step); write data.balance: histories"
        )
    return None


def _without(made: OpenRun, said: Any) -> OpenRun:
    """The run without balance, where it says auto."""
    return replace(made, run=replace(made.run, data=replace(made.run.data, balance=None))) if said == "auto" else made
