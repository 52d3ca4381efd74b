"""Measuring all-to-alls between local ranks, and the alpha-beta model of them.

Every rank of one launched job (jobs/launch.py) runs `measure_ranks`; the first one writes the journal, so a killed
run loses at most the exchange that runs. On one CPU, two ranks pass bytes through the kernel's loopback: the model
fitted to them says what that costs, and nothing about networks.
"""

import json
from pathlib import Path

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import UsageError
from recsmith.files import write_text
from recsmith.jobs.launch import launch
from recsmith.jobs.machine import free_cores
from recsmith.measuring.folder import About, Folder, load_about, open_folder
from recsmith.measuring.parts import has_pyarrow, read_columns
from recsmith.measuring.run import Limit

MODEL_SCHEMA = "recsmith/alpha-beta/1"
START_S = 120.0  # more than a job takes to start and to end
NEEDED = 5  # exchanges that a fit needs


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


def measure_comm(path: Path, ranks: int, limit: Limit, seed: int = 0) -> int:
    """Measure exchanges between local ranks into a folder; how many were added.

    Raises:
        UsageError: fewer than two ranks, or no budget.
        MissingExtra: PyTorch, FBGEMM or TorchRec is missing.
    """
    check_ranks(ranks)
    if limit.budget_s is None or limit.samples is not None:
        raise UsageError("local ranks are measured for a time; give a --budget such as 1m, and no number of --samples")
    about = About(kind="comm", hardware="local ranks", seed=seed, ranks=ranks)
    with open_folder(path, about) as folder:
        start = folder.position
        arguments = {"folder": str(path), "seed": seed, "start": start, "budget_s": limit.budget_s}
        launch("recsmith.measuring.ranks:measure_ranks", arguments, ranks=ranks, timeout_s=limit.budget_s + START_S)
        folder.reread()
        return finish(folder, start)


def check_ranks(ranks: int) -> None:
    """Refuse what exchanges nothing."""
    if ranks < 2:
        raise UsageError(f"{ranks} ranks exchange nothing; measure at least 2")


def finish(folder: Folder, start: int) -> int:
    """Fold a folder and fit its model; how many exchanges it holds since a position."""
    if has_pyarrow():
        folder.fold()
    model = fit_alpha_beta(folder.path)
    if model is not None:
        fields = {name: getattr(model, name) for name in AlphaBeta.__dataclass_fields__}
        target = folder.path / "alpha-beta.json"
        write_text(str(target), json.dumps({"schema": MODEL_SCHEMA, **fields}, indent=2) + "\n")
    return folder.position - start


def oversubscribed(ranks: int) -> bool:
    """Whether ranks outnumber the cores that this process may use, so that the scheduler is measured, not the link."""
    return ranks > free_cores()


def fit_alpha_beta(path: Path) -> AlphaBeta | None:
    """The model of a folder's exchanges without skew: least squares of relative errors; None with too few.

    On CPU only two ranks are fitted: more of them share cores and caches in ways that the form does not know.
    """
    found = read_columns(path, ["ranks", "backend", "skew_s", "sent_bytes", "received_bytes", "median_s"])
    first = found["backend"][:1]
    rows = [i for i, skew in enumerate(found["skew_s"]) if not any(skew) and found["backend"][i] in first]
    if len(rows) < NEEDED or (found["backend"][0] == "gloo" and found["ranks"][0] != 2):
        return None
    size = np.array([max(*found["sent_bytes"][i], *found["received_bytes"][i]) for i in rows], dtype=np.float64)
    seconds = np.array([max(found["median_s"][i]) for i in rows])
    alpha, slope = _fit(size, seconds)
    error = float(np.median(np.abs((alpha + slope * size) / seconds - 1)))
    where = load_about(path).hardware if found["backend"][0] == "simulated" else "one machine"
    label = f"alpha-beta fitted to {found['ranks'][0]} {found['backend'][0]} ranks on {where}"
    return AlphaBeta(alpha_s=alpha, bytes_per_s=1 / slope, median_error=error, samples=len(rows), label=label)


def _fit(size: Floats, seconds: Floats) -> tuple[float, float]:
    """(alpha, seconds per byte), both above 0."""
    (alpha, slope), *_ = np.linalg.lstsq(
        np.stack([1 / seconds, size / seconds], axis=1), np.ones(len(size)), rcond=None
    )
    least = float(seconds.min())
    return max(float(alpha), least * 1e-3), max(float(slope), least * 1e-3 / float(size.max()))
