"""Collectives: in which form embeddings and gradients cross ranks (protocol.py).

TorchRec's codecs: quantised.py. Fewer numbers: thresholded.py.
"""

from dataclasses import replace
from typing import Any

from recsmith._components import make, register
from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.plans import Plan
from recsmith.training.collectives.protocol import Collectives
from recsmith.training.collectives.quantised import RunComms
from recsmith.training.collectives.thresholded import AUTO_SHARE, Thresholded
from recsmith.units import format_time

KIND = "collective"

register(KIND, "quantised", RunComms)
register(KIND, "thresholded", Thresholded)


def collectives_of(comms: object) -> Collectives:
    """The collective of a run's `comms`: of {forward, backward}, or of a name or 'module:Class' with its settings.

    Raises:
        UsageError: nothing is called so, or a setting is not one of its own.
    """
    return comms if isinstance(comms, RunComms) else make(KIND, comms, where="comms")


def sharders_of(collective: Collectives) -> Any:
    """TorchRec's sharders of pooled and of sequence embeddings, with a collective's codecs (imports torch)."""
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    codecs: Any = collective.codecs()
    if codecs and not isinstance(collective, RunComms):  # whose codecs name an element type, which planning reads
        for pair in codecs.values():
            for codec, sent in zip((pair.forward, pair.backward), collective.bytes_per_value(), strict=True):
                codec.bytes_per_value = sent
    made: list[Any] = [
        sharder(qcomm_codecs_registry=codecs) for sharder in (EmbeddingBagCollectionSharder, EmbeddingCollectionSharder)
    ]
    if not codecs:
        made[0].bytes_per_value = collective.bytes_per_value()  # of pooled embeddings
    return made


def decided(comms: object, plan: Plan, numbers: int) -> tuple[Any, list[str]]:
    """What a run's comms are under a plan, and lines that say why, where they leave it to us (dense: auto).

    numbers: of the gradients that cross ranks.
    """
    made: Any = collectives_of(comms)
    if not isinstance(made, Thresholded) or made.dense is None:
        return comms, []
    if made.dense != "auto" and made.dense * numbers < 1:
        raise UsageError(
            f"comms.dense is {made.dense:g}, which is less than one of the {numbers:,} numbers whose gradients cross; "
            f"give {1 / max(numbers, 1):.2g} or more, or leave it out"
        )
    settled = replace(made, dense=AUTO_SHARE) if made.dense == "auto" else made
    before, after, work = settled.step_seconds(plan.cluster, numbers)
    told = (
        f"gradients of {numbers:,} dense numbers: {format_time(before)} of a step on the plan's links, "
        f"{format_time(after + work)} where {settled.dense:.2%} of them cross, choosing them included"
    )
    if made.dense != "auto" or after + work < before:
        return _named(settled), [told]
    why = f"{told}; so comms.dense, which is auto, sends all of them"
    return (made.columns if made.pooled is None else _named(replace(made, dense=None))), [why]


def _named(comms: Thresholded) -> dict[str, Any]:
    """As a run names it."""
    return {"name": "thresholded", **encode(comms)}
