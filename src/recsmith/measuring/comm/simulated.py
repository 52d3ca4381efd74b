"""Writes all-to-alls of simulated GPUs into a folder: the rows of measured ranks, without any rank to start."""

import time
from pathlib import Path

import numpy as np

from recsmith.hardware import load_links
from recsmith.hardware.simulated_links import SimulatedLinks
from recsmith.measuring.about import About
from recsmith.measuring.columns import origin_columns
from recsmith.measuring.comm.alpha_beta import fold_and_fit
from recsmith.measuring.comm.exchanges import GPU, draw_exchange, exchange_columns
from recsmith.measuring.comm.rank_counts import check_ranks
from recsmith.measuring.folder import open_folder
from recsmith.measuring.journal import Row
from recsmith.measuring.limit import Limit
from recsmith.measuring.revisits import case_of


def simulate_comm(hardware: str, path: Path, ranks: int, limit: Limit, seed: int = 0) -> int:
    """Write exchanges of simulated ranks into a folder; returns how many were added. Ctrl-C ends it as its limit would.

    Raises:
        UsageError: the hardware is none that is simulated, or fewer than two ranks.
    """
    check_ranks(ranks)
    links = load_links(hardware)
    about = About(kind="comm", hardware=links.name, seed=seed, scale="gpu", ranks=ranks)
    begun = time.monotonic()
    with open_folder(path, about) as folder:
        start = folder.position
        try:
            while not limit.reached(folder.position, time.monotonic() - begun):
                folder.add(_row(links, seed, folder.position, ranks))
                folder.fold_if_full()
        except KeyboardInterrupt:
            pass
        return fold_and_fit(folder, start)


def _row(links: SimulatedLinks, seed: int, position: int, ranks: int) -> Row:
    begun = time.monotonic()
    number, visit = case_of(position)
    exchange = draw_exchange(seed, number, ranks, GPU)
    seconds = links.seconds(exchange.traffic, np.array(exchange.skew_s), (seed, number, visit))
    row = {
        "position": position,
        "seed": seed,
        "number": number,
        "visit": visit,
        **exchange_columns(exchange, seconds[:, None].tolist()),
    }
    row |= {"backend": "simulated", "oversubscribed": False}
    return row | origin_columns(time.monotonic() - begun, links.name, links.device, links.versions)
