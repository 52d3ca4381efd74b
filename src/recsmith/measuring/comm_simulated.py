"""All-to-alls of simulated GPUs into a folder: the rows of measuring/comm.py, without any rank to start."""

import time
from pathlib import Path

import numpy as np

from recsmith.hardware import load_links
from recsmith.hardware.simulated_links import SimulatedLinks
from recsmith.measuring.comm import check_ranks, finish
from recsmith.measuring.exchanges import GPU, draw_exchange, row_of
from recsmith.measuring.folder import PART, About, open_folder
from recsmith.measuring.journal import Row
from recsmith.measuring.parts import has_pyarrow
from recsmith.measuring.run import Limit, origin
from recsmith.measuring.samples import which


def simulate_comm(hardware: str, path: Path, ranks: int, limit: Limit, seed: int = 0) -> int:
    """Exchanges of simulated ranks into a folder; how many were added. Ctrl-C ends the run as its limit would.

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
            while not _over(limit, folder.position, time.monotonic() - begun):
                folder.add(_row(links, seed, folder.position, ranks))
                if folder.pending >= PART and has_pyarrow():
                    folder.fold()
        except KeyboardInterrupt:
            pass
        return finish(folder, start)


def _over(limit: Limit, held: int, elapsed_s: float) -> bool:
    enough = limit.samples is not None and held >= limit.samples
    return enough or (limit.budget_s is not None and elapsed_s >= limit.budget_s)


def _row(links: SimulatedLinks, seed: int, position: int, ranks: int) -> Row:
    begun = time.monotonic()
    number, visit = which(position)
    exchange = draw_exchange(seed, number, ranks, GPU)
    seconds = links.seconds(exchange.traffic, np.array(exchange.skew_s), (seed, number, visit))
    row = {
        "position": position,
        "seed": seed,
        "number": number,
        "visit": visit,
        **row_of(exchange, seconds[:, None].tolist()),
    }
    row |= {"backend": "simulated", "oversubscribed": False}
    return row | origin(time.monotonic() - begun, links.name, links.device, links.versions)
