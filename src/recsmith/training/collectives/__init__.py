"""Collectives: how embeddings and gradients are encoded when they are sent between ranks (protocol.py).

TorchRec's codecs are in quantised.py. Systems register others.
"""

from typing import Any

from recsmith._components import make, register
from recsmith.training.collectives.protocol import Collectives
from recsmith.training.collectives.quantised import RunComms

KIND = "collective"

register(KIND, "quantised", RunComms)


def collectives_of(comms: object) -> Collectives:
    """The collective of a run's `comms`: {forward, backward}, or a name or 'module:Class' with its settings.

    Raises:
        UsageError: no collective has this name, or a setting is not one of its own.
    """
    return comms if isinstance(comms, RunComms) else make(KIND, comms, where="comms")


def sharders_of(collective: Collectives, *, index_dedup: bool = False) -> Any:
    """TorchRec's sharders of pooled and of sequence embeddings, with a collective's codecs (imports torch).

    index_dedup: whether a rank looks up each distinct id only once in sequence tables.
    """
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    codecs: Any = collective.codecs()
    if codecs and not isinstance(collective, RunComms):  # RunComms' codecs name an element type, which planning reads
        for pair in codecs.values():
            for codec, sent in zip((pair.forward, pair.backward), collective.bytes_per_value(), strict=True):
                codec.bytes_per_value = sent
    made: list[Any] = [
        EmbeddingBagCollectionSharder(qcomm_codecs_registry=codecs),
        EmbeddingCollectionSharder(qcomm_codecs_registry=codecs, use_index_dedup=index_dedup),
    ]
    if index_dedup:
        from recsmith.adapters.index_dedup import on_cpu

        on_cpu()
    if not codecs:
        made[0].bytes_per_value = collective.bytes_per_value()  # of the sharder of pooled embeddings
    return made
