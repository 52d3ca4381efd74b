"""Whether a piece fits on an empty cluster.

Legend: N pieces, W ranks.
"""

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.sharding import Span
from recsmith.sharding.memory import Bytes

_ENDLESS = np.iinfo(np.int64).max


def fits_alone(cluster: Cluster, span: Ints, head: Bytes, tail: Bytes) -> Bools:
    """Whether a piece (N,) of this span fits on some target of an empty cluster (device and host memory)."""
    flat = np.array(cluster.capacities, dtype=np.int64)
    on_rank = tail.device <= flat.max()
    on_host = np.zeros(len(span), dtype=bool)
    for row in np.unique(flat.reshape(cluster.hosts, -1), axis=0):
        on_host |= (head.device <= row[:-1].min(initial=_ENDLESS)) & (tail.device <= row[-1])
    everywhere = (head.device <= flat[:-1].min(initial=_ENDLESS)) & (tail.device <= flat[-1])
    device = np.select([span == Span.RANK, span == Span.HOST], [on_rank, on_host], everywhere)
    last = (cluster.local_world_size - 1) * head.host + tail.host
    fullest = last if cluster.hosts == 1 else cluster.local_world_size * head.host
    held = np.select([span == Span.RANK, span == Span.HOST], [tail.host, last], fullest)
    return device & (held <= (cluster.ddr_bytes_per_host or 0))
