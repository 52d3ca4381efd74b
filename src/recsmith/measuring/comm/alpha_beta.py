"""The alpha-beta model of a folder of exchanges: seconds = alpha + bytes / bandwidth.

On one CPU, two ranks pass bytes through the kernel's loopback: the model fitted to them says what that costs, and
nothing about networks.

Legend: N exchanges.
"""

import json
from pathlib import Path

import numpy as np

from recsmith._types import Floats, noun
from recsmith.files import write_text
from recsmith.measuring.about import load_about
from recsmith.measuring.folder import Folder
from recsmith.measuring.rows import read_columns

MODEL_SCHEMA = "recsmith/alpha-beta/1"
MODEL_NAME = "alpha-beta.json"
LEAST_EXCHANGES = 5  # that two parameters are fitted to. Trade-off: fewer follow single disturbed exchanges
LEAST_SHARE = 1e-3  # of the fastest exchange: what alpha takes at least, and the slope at the most bytes, to be above 0


@noun
class AlphaBeta:
    """Seconds of an all-to-all: alpha_s + bytes / bytes_per_s, of the rank that sends or receives the most.

    label: what it was fitted to. median_error: of the fit, relative, over `samples` exchanges without skew.
    """

    alpha_s: float
    bytes_per_s: float
    median_error: float
    samples: int
    label: str


def fold_and_fit(folder: Folder, start: int) -> int:
    """Fold a folder and write its model beside the rows; returns how many exchanges were added since a position."""
    folder.fold_if_possible()
    model = fit_alpha_beta(folder.path)
    if model is not None:
        fields = {name: getattr(model, name) for name in AlphaBeta.__dataclass_fields__}
        write_text(str(folder.path / MODEL_NAME), json.dumps({"schema": MODEL_SCHEMA, **fields}, indent=2) + "\n")
    return folder.position - start


def fit_alpha_beta(path: Path) -> AlphaBeta | None:
    """The model of a folder's exchanges without skew: least squares of relative errors; None with too few.

    On CPU only two ranks are fitted: more of them share cores and caches in ways that the form does not know.
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
