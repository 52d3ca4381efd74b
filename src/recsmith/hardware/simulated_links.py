"""All-to-alls on `simulated:<gpu>`: alpha-beta as in the analytic cost model, with three effects that it lacks.

It needs no PyTorch, and is no more accurate than its rules: it replaces a cluster in tests of models of all-to-alls.
Bytes flow continuously. Each rank has a port out and a port in to its own host, and two others (its network card) to
other hosts. All ports work at the same time, with the bandwidths of the catalogue and the efficiencies of the analytic
model.

- **pairs**: a message from one rank to another starts once both ranks have started: ncclSend and ncclRecv wait for each
  other, and the pairs of a group are independent (NCCL user guide, point-to-point communication). So a rank that
  starts early waits for the last one, and by then the exchanges between the other ranks are done.
- **ports are shared**: messages in flight through a port get equal parts of it, and a message is as fast as the slower
  of its two ports allows. It is an assumption that no message uses bandwidth that another one leaves free.
- **incast**: a card that receives from n ranks at once takes 1 + INCAST (1 - 1/n) times as long. Assumed.

A rank ends when its last message has ended, sent or received, plus the latency of the call.

Legend: W ranks.
"""

import math
from dataclasses import replace

import numpy as np

from recsmith._types import Bools, Floats
from recsmith._version import __version__
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs.collectives import INTER_HOST_EFFICIENCY, INTRA_HOST_EFFICIENCY, latency, ranks_per_host
from recsmith.errors import UsageError
from recsmith.hardware.case import NOISE, KeyedRandom
from recsmith.hardware.simulated import check_noise
from recsmith.sharding import Collective

ALL_TO_ALL = Collective("all_to_all", "world")
INCAST = 0.2  # largest relative slowdown of a card that receives from many ranks at once; assumed, not measured
DONE = 1e-12  # share of a message; a smaller rest is due to rounding, and counts as sent


class SimulatedLinks:
    """The links of a device of the catalogue, or of a cluster file. noise: as in hardware/simulated.py."""

    def __init__(self, source: str, noise: float = 0.0) -> None:
        check_noise(noise)
        self._cluster, self._noise = load_cluster(source), noise
        self.name = f"simulated:{source}" + (f"?noise={noise:g}" if noise else "")
        self.device = f"{self._cluster.device.name}, simulated"
        self.versions = f"recsmith {__version__}"

    @property
    def per_host(self) -> int:
        """Devices of a host."""
        return self._cluster.local_world_size

    def cluster(self, ranks: int) -> Cluster:
        """W ranks of this device, on hosts that they fill evenly."""
        local = ranks_per_host(ranks, self.per_host)
        return replace(self._cluster, local_world_size=local, hosts=ranks // local, hbm_bytes=None, reserve_bytes=0)

    def seconds(self, traffic: Floats, skew_s: Floats, noise_key: tuple[int, int, int] | None = None) -> Floats:
        """Seconds (W,) from the start of each rank to its end.

        traffic: bytes from each rank to each (W, W); bytes from a rank to itself are not sent. skew_s: starts (W,).
        noise_key: seed, number and visit, from which the noise is drawn; None: no noise. Noise multiplies the time
        after the last start, with the same factor for all ranks.

        Raises:
            UsageError: there are fewer than two ranks, or numbers that are no bytes or no seconds.
        """
        _check(traffic, skew_s)
        start = skew_s - skew_s.min()
        cluster = self.cluster(len(start))
        away = traffic * (1.0 - np.eye(len(start)))
        end = np.maximum(start, _ends(away, start, cluster)) + latency(ALL_TO_ALL, cluster)
        waited = np.minimum(end, start.max())
        return waited - start + (end - waited) * self._factor(noise_key)

    def _factor(self, key: tuple[int, int, int] | None) -> float:
        if key is None or not self._noise:
            return 1.0
        seed, number, visit = key
        return math.exp(self._noise * float(KeyedRandom(seed, number, NOISE + visit).normal(1)[0]))


def _check(traffic: Floats, skew_s: Floats) -> None:
    if len(skew_s) < 2 or traffic.shape != (len(skew_s), len(skew_s)):
        raise UsageError(
            f"an exchange of shape {traffic.shape} with {len(skew_s)} starts; give bytes from each of at least 2 ranks "
            "to each, and a start of each"
        )
    if not (np.isfinite(traffic).all() and (traffic >= 0).all() and np.isfinite(skew_s).all()):
        raise UsageError("bytes must be finite and 0 or more, and starts finite")


def _ends(traffic: Floats, start: Floats, cluster: Cluster) -> Floats:
    """End of the last message of each rank (W,), within hosts and across them."""
    host = np.arange(len(start)) // cluster.local_world_size
    same_host = host[:, None] == host
    links = cluster.links
    inside = _flow(np.where(same_host, traffic, 0.0), start, links.intra_host_bandwidth * INTRA_HOST_EFFICIENCY, 0.0)
    if cluster.hosts == 1:
        return inside
    across = np.where(same_host, 0.0, traffic)
    return np.maximum(inside, _flow(across, start, links.inter_host_bandwidth * INTER_HOST_EFFICIENCY, INCAST))


def _flow(traffic: Floats, start: Floats, bandwidth: float, incast: float) -> Floats:
    """End of the last message of each rank (W,), for messages that share one kind of port; 0 without any.

    Between two events (a pair is ready, a message ends) rates are constant.
    """
    left, least = traffic.copy(), DONE * traffic
    ready = np.maximum(start[:, None], start)
    done = np.zeros_like(left)
    now = 0.0
    while (waiting := left > 0).any():
        moving = waiting & (ready <= now)
        rate = _rates(moving, bandwidth, incast)
        event = float((ready[waiting & ~moving]).min(initial=np.inf)) - now
        event = min(event, float((left[moving] / rate[moving]).min(initial=np.inf)))
        now += event
        left = np.where(moving, left - rate * event, left)
        ended = moving & (left <= least)
        left[ended], done[ended] = 0.0, now
    return np.maximum(done.max(axis=0), done.max(axis=1))


def _rates(moving: Bools, bandwidth: float, incast: float) -> Floats:
    """Bytes per second of each message in flight (W, W): the smaller of its shares of its two ports."""
    sends, receives = np.maximum(moving.sum(axis=1), 1), np.maximum(moving.sum(axis=0), 1)
    slowdown = 1 + incast * (1 - 1 / receives)
    return bandwidth * np.minimum(1 / sends[:, None], 1 / (receives * slowdown))
