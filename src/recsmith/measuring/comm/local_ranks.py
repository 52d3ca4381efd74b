"""Measures all-to-alls between local ranks into a folder.

Every rank of one launched job (jobs/launch.py) runs comm/rank_worker.py; the first rank writes the journal, so a killed
run loses at most the exchange that was being measured.
"""

from pathlib import Path

from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.measuring.about import About
from recsmith.measuring.comm.alpha_beta import fold_and_fit
from recsmith.measuring.comm.rank_counts import check_ranks
from recsmith.measuring.folder import open_folder
from recsmith.measuring.limit import Limit

WORKER = "recsmith.measuring.comm.rank_worker:measure_ranks"
START_S = 120.0  # seconds beyond the budget before a job counts as stuck: more than it takes to start and to end


def measure_comm(path: Path, ranks: int, limit: Limit, seed: int = 0) -> int:
    """Measure exchanges between local ranks into a folder; returns how many were added.

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
        launch(WORKER, arguments, ranks=ranks, timeout_s=limit.budget_s + START_S)
        folder.reread()
        return fold_and_fit(folder, start)
