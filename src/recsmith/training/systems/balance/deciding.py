"""The work by which samples are balanced over ranks, and whether that pays, by the first steps of the data.

W ranks, B samples of each in a step
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recsmith._types import Ints, noun
from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import pays, said_of
from recsmith.data.dealing import Deal, busiest, dealt
from recsmith.data.source import by_rows
from recsmith.prediction.histories import DEALT_S, history_layers_s
from recsmith.prediction.job_step import JobStep
from recsmith.training.job.run_step import history_work
from recsmith.training.models import sequence_settings
from recsmith.training.models.work import layer_work
from recsmith.training.seams.predicting import OpenRun
from recsmith.training.sources import first_steps, reading_of
from recsmith.training.sources.dataset import DatasetSource
from recsmith.units import format_time

if TYPE_CHECKING:
    from recsmith.training.run.run import Run

LIKELIEST = 4  # ranks with most work whose layers are priced: lengths that differ more can take longer than more work
LOOKED_AT = 64  # steps; over only a few, the busiest rank may have much less or much more work than over most


@noun
class WorkOfRanks:
    """Work of the busiest rank / mean work in a run's first steps: with samples as stored, and balanced."""

    stored: float
    dealt: float


def deal_of(run: "Run") -> Deal | None:
    """The work by which a run's samples are balanced: its own setting, or that of its model; None for other models."""
    if isinstance(run.data.balance, Deal):
        return run.data.balance
    settings = sequence_settings(run.model.name, run.model.arguments)
    if settings is None:
        return None
    longest = np.array([settings.longest])
    work = layer_work(settings, run.model.embedding_dim, lengths=longest, others=0, labels=1)
    return Deal(feature=settings.history[0], squared=work.pair_work, longest=settings.longest)


def spread_of(deal: Deal, steps: Sequence[Ints], ranks: int) -> WorkOfRanks:
    """Work of the busiest rank, stored and balanced. steps: lengths of the histories of each step, as stored."""
    both = [
        (busiest(work, _cut(len(work), ranks), ranks), busiest(work, dealt(work, ranks), ranks))
        for work in map(deal.work, steps)
    ]
    stored, even = np.mean(both, axis=0).tolist()
    return WorkOfRanks(stored=stored, dealt=even)


def _cut(count: int, ranks: int) -> Ints:
    """The rank of each sample if samples are shared in the order in which they are stored."""
    return np.repeat(np.arange(ranks), np.diff(np.arange(ranks + 1) * count // ranks))


@dataclass(frozen=True)
class BothSteps:
    """The predicted step of the busiest rank, with samples as stored and balanced."""

    stored: JobStep
    dealt: JobStep


def decided(made: OpenRun, key: str) -> OpenRun:
    """The run with what `auto` decided, the step of its busiest rank, and a line on the decision."""
    run, source, said = made.run, made.parts.source, made.run.data.balance
    ranks = made.priced.cluster.world_size
    deal = deal_of(run) if isinstance(source, DatasetSource) else None
    if deal is None or (said is None and (made.step is None or ranks == 1)):
        return made
    if ranks == 1:
        return _without(made, said).with_lines(key, False, ["balance: off, since one rank has all samples of a step"])
    looked_at = first_steps(source, deal.feature, ranks, run.data.local_batch_size(ranks), LOOKED_AT)
    both = _both_steps(made, deal, looked_at, ranks)
    gain = 0.0 if both is None else replace(made, step=both.stored).gain_of(both.dealt)
    deals = said is not None and (said != "auto" or pays(gain))
    if both is not None:
        made = replace(made, step=both.dealt if deals else both.stored)
    if said is None:
        return made
    line = _line(spread_of(deal, looked_at, ranks), both, gain, ranks, deals=deals)
    return (made if deals else _without(made, said)).with_lines(key, deals, [line])


def _both_steps(made: OpenRun, deal: Deal, looked_at: Sequence[Ints], ranks: int) -> BothSteps | None:
    """Steps of the busiest rank, by the lengths of its own histories; None if steps are not predicted."""
    if made.step is None or made.lengths is None:
        return None
    batch = made.priced.workload.batch_size
    seconds = [
        [_busiest_layers_s(made, _heaviest(deal, lengths, rank_of, ranks))
         for rank_of in (_cut(len(lengths), ranks), dealt(deal.work(lengths), ranks))]
        for lengths in looked_at
    ]  # fmt: skip
    stored, even = np.mean(seconds, axis=0).tolist()
    layers = made.step.layers_s / _busiest_layers_s(made, [made.lengths])  # 1, except for products in bf16
    beside = _read_beside_s(made, ranks)
    return BothSteps(
        replace(made.step, layers_s=stored * layers, reading_s=max(0.0, made.step.reading_s - beside)),
        replace(made.step, layers_s=even * layers, reading_s=made.step.reading_s + batch * DEALT_S),
    )


def _heaviest(deal: Deal, lengths: Ints, rank_of: Ints, ranks: int) -> list[Ints]:
    """Lengths of the histories of the few ranks with most work, one of which takes longest."""
    loads = np.bincount(rank_of, weights=deal.work(lengths), minlength=ranks)
    return [lengths[rank_of == rank] for rank in np.argsort(-loads, kind="stable")[:LIKELIEST]]


def _read_beside_s(made: OpenRun, ranks: int) -> float:
    """Seconds of reading that a rank saves if it reads only its own samples, which the step counts as read.

    Formats that read whole blocks read the samples of all ranks if they are shuffled, or if a block holds samples of
    several ranks.
    """
    source, batch = made.parts.source, made.priced.workload.batch_size
    assert isinstance(source, DatasetSource)  # no other source balances samples
    if by_rows(source.dataset.source) is not None or source.data.shuffle:
        return 0.0
    block = float(np.mean(source.dataset.source.sizes()))
    beside = max(0.0, ranks * batch - (batch + block))
    reading = reading_of(source)
    return 0.0 if reading is None else beside * reading.sample_s


def _line(found: WorkOfRanks, both: BothSteps | None, gain: float, ranks: int, *, deals: bool) -> str:
    work = (
        f"in the first steps the busiest of {ranks} ranks has {found.dealt:.3f} times the mean work of histories when "
        f"they are dealt, and {found.stored:.2f} times as samples are stored"
    )
    if both is None:
        return f"balance: {work}" + ("" if deals else "; off, since no step is predicted of which that would be a part")
    steps = f"a step takes {format_time(both.dealt.step_s)} in place of {format_time(both.stored.step_s)}"
    text = f"{work}; {steps}, which {said_of(gain, NAMED['step'])}"
    return f"balance: {text}" if deals else f"balance: off: {text}"


def _without(made: OpenRun, said: Any) -> OpenRun:
    """The run without balance, if it says auto."""
    return replace(made, run=replace(made.run, data=replace(made.run.data, balance=None))) if said == "auto" else made


def _busiest_layers_s(made: OpenRun, histories: Sequence[Ints]) -> float:
    """Seconds of the layers of the rank that takes longest. histories: lengths, of each rank."""
    works = [history_work(made.run, made.priced, each) for each in histories if len(each)]
    batch = made.priced.workload.batch_size
    return max((history_layers_s(each, batch) for each in works if each), default=0.0)
