"""Measures all-to-alls into a folder, between local ranks or on simulated links, and fits the alpha-beta model to them.

Every rank of one launched job (jobs/launch.py) runs rank_worker.py; the first rank writes the journal, so a killed run
loses at most the exchange that was being measured. Simulated ranks need no job.

The model is seconds = alpha + bytes / bandwidth. On one CPU, two ranks send bytes through the kernel's loopback: the
model fitted to them gives that cost, and says nothing about networks.

Legend: N exchanges.
"""

import json
import time
from pathlib import Path

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import UsageError
from recsmith.files import write_text
from recsmith.hardware import load_links
from recsmith.hardware.simulated_links import SimulatedLinks
from recsmith.jobs.launch import launch
from recsmith.measuring.about import About, load_about
from recsmith.measuring.cases import case_of
from recsmith.measuring.columns import origin_columns
from recsmith.measuring.exchanges import GPU, check_ranks, draw_exchange, exchange_columns
from recsmith.measuring.folder import Folder, Limit, open_folder, read_columns
from recsmith.measuring.journal import Row

MODEL_SCHEMA = "recsmith/alpha-beta/1"
MODEL_NAME = "alpha-beta.json"
LEAST_EXCHANGES = 5  # fewest for the fit of two parameters. Trade-off: fewer follow single disturbed exchanges
LEAST_SHARE = 1e-3  # share of the fastest exchange that alpha, and the slope at the most bytes, take at least


@noun
class AlphaBeta:
    """Seconds of an all-to-all: alpha_s + bytes / bytes_per_s, for the rank that sends or receives the most.

    label: the data of the fit. median_error: median relative error of the fit, over `samples` exchanges without skew.
    """

    alpha_s: float
    bytes_per_s: float
    median_error: float
    samples: int
    label: str


def fold_and_fit(folder: Folder, start: int) -> int:
    """Fold a folder and write its model beside the rows; returns the number of exchanges added since `start`."""
    folder.fold_if_possible()
    model = fit_alpha_beta(folder.path)
    if model is not None:
        fields = {name: getattr(model, name) for name in AlphaBeta.__dataclass_fields__}
        write_text(str(folder.path / MODEL_NAME), json.dumps({"schema": MODEL_SCHEMA, **fields}, indent=2) + "\n")
    return folder.position - start


def fit_alpha_beta(path: Path) -> AlphaBeta | None:
    """The model of a folder's exchanges without skew, by least squares of relative errors; None with too few.

    On CPU only two ranks are fitted: more ranks share cores and caches in ways that the model's form does not cover.
    """
    columns = read_columns(path, ["ranks", "backend", "skew_s", "sent_bytes", "received_bytes", "median_s"])
    first = columns["backend"][:1]
    rows = [i for i, skew in enumerate(columns["skew_s"]) if not any(skew) and columns["backend"][i] in first]
    if len(rows) < LEAST_EXCHANGES or (columns["backend"][0] == "gloo" and columns["ranks"][0] != 2):
        return None
    size = np.array([max(*columns["sent_bytes"][i], *columns["received_bytes"][i]) for i in rows], dtype=np.float64)
    seconds = np.array([max(columns["median_s"][i]) for i in rows])
    alpha, slope = _fit(size, seconds)
    error = float(np.median(np.abs((alpha + slope * size) / seconds - 1)))
    where = load_about(path).hardware if columns["backend"][0] == "simulated" else "one machine"
    label = f"alpha-beta fitted to {columns['ranks'][0]} {columns['backend'][0]} ranks on {where}"
    return AlphaBeta(alpha_s=alpha, bytes_per_s=1 / slope, median_error=error, samples=len(rows), label=label)


def _fit(size: Floats, seconds: Floats) -> tuple[float, float]:
    """(alpha, seconds per byte), both above 0, of bytes (N,) and seconds (N,)."""
    (alpha, slope), *_ = np.linalg.lstsq(
        np.stack([1 / seconds, size / seconds], axis=1), np.ones(len(size)), rcond=None
    )
    least = float(seconds.min())
    return max(float(alpha), least * LEAST_SHARE), max(float(slope), least * LEAST_SHARE / float(size.max()))


WORKER = "recsmith.measuring.rank_worker:measure_ranks"
START_S = 120.0  # seconds beyond the budget after which a job counts as stuck: more than starting and ending take


def measure_comm(path: Path, ranks: int, limit: Limit, seed: int = 0) -> int:
    """Measure exchanges between local ranks into a folder; returns the number of added exchanges.

    Raises:
        UsageError: there are fewer than two ranks, no budget, or a number of samples.
        MissingExtra: PyTorch, FBGEMM or TorchRec is missing.
    """
    check_ranks(ranks)
    if limit.budget_s is None or limit.samples is not None:
        raise UsageError("local ranks are measured for a time; give a --budget such as 1m, and no number of --samples")
    about = About(kind="comm", hardware="local ranks", seed=seed, ranks=ranks)
    with open_folder(path, about) as folder:
        start = folder.position
        arguments = {"folder": str(path), "seed": seed, "start": start, "budget_s": limit.budget_s}
        launch(WORKER, arguments, ranks=ranks, timeout_s=limit.budget_s + START_S)
        folder.reread()
        return fold_and_fit(folder, start)


def simulate_comm(hardware: str, path: Path, ranks: int, limit: Limit, seed: int = 0) -> int:
    """Write exchanges of simulated ranks into a folder; returns the number added. Ctrl-C ends it as its limit does.

    Raises:
        UsageError: there is no simulation of the hardware, or there are fewer than two ranks.
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
        "position": position, "seed": seed, "number": number, "visit": visit,
        **exchange_columns(exchange, seconds[:, None].tolist()),
    }  # fmt: skip
    row |= {"backend": "simulated", "oversubscribed": False}
    return row | origin_columns(time.monotonic() - begun, links.name, links.device, links.versions)
