"""What ranks of measured plans took, as measurements that a cost model can be learned from.

    python benchmarks/gpu/plan_samples.py samples/h100/plans.tar.gz samples/h100-plans
    python benchmarks/gpu/plan_samples.py samples/h100/plans.tar.gz some --tasks 0 2 4     # three of every row's tasks

`recsmith bench sharding` times what each rank of each plan runs. Where that is one fused kernel, its time is a sample
of it, of just the groups that searches put together. Ranks with two kernels are left out, since only their sum
was timed. Counts of rows that are read are expected ones, by the law that ids were drawn from.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from measured_plans import folder_of, tasks_of

from recsmith.bench.journal import MeasuredVisit, RunStore, load_settings
from recsmith.bench.visits import place_task
from recsmith.hardware import Case
from recsmith.hardware.loads import Load
from recsmith.hardware.simulated import reuse_bins
from recsmith.measuring.about import About
from recsmith.measuring.cases import EVERY
from recsmith.measuring.compute import case_columns
from recsmith.measuring.folder import open_folder
from recsmith.measuring.journal import Row
from recsmith.verifying.visits import LEAST

SCALE = "plans"


class Timed(NamedTuple):
    """What a kernel took in a visit. elapsed_s: of the visit, its part."""

    forward_s: float
    backward_s: float
    elapsed_s: float
    visit: MeasuredVisit


def main() -> None:
    parser = argparse.ArgumentParser(description="Ranks of measured plans as samples.")
    parser.add_argument("plans", type=Path, help="folder of `bench sharding`, or an archive of one")
    parser.add_argument("output", type=Path, help="folder of measurements to write, new or empty")
    parser.add_argument("--tasks", type=int, nargs="*", help="of every row, counted from 0 (default: all)")
    words = parser.parse_args()
    with folder_of(words.plans) as folder:
        convert(folder, words.output, words.tasks)


def convert(plans: Path, output: Path, tasks: Sequence[int] | None) -> None:
    """Write the samples of a run's plans into a folder."""
    settings, found = load_settings(plans), defaultdict[Case, dict[int, Timed]](dict)
    for case, seen in timed(plans, tasks):
        found[case][seen.visit.visit] = seen  # of a kernel that several tasks share, the last one's
    about = About(
        kind="compute", hardware=settings.hardware.partition(":")[0], seed=settings.seed, scale=SCALE,
        optimizers=tuple(sorted({case.workload.optimizer for case in found})),
        data_types=tuple(sorted({case.data_type for case in found})), planned=settings.cost_model,
    )  # fmt: skip
    output.mkdir(exist_ok=True)
    with open_folder(output, about) as folder:
        for place, (case, visits) in enumerate(found.items()):
            sample = place // (EVERY - 1) * EVERY + place % (EVERY - 1)  # every tenth place means a case met before
            for visit, (_, seen) in enumerate(sorted(visits.items())):
                which = {"position": folder.position, "sample": sample, "visit": visit, "hardware": about.hardware}
                folder.add(which | row_of(case, seen))
                folder.fold_if_full()
        folder.fold_if_possible()
    print(f"{len(found):,} samples")


def timed(plans: Path, tasks: Sequence[int] | None) -> Iterator[tuple[Case, Timed]]:
    """Every kernel that a rank runs alone, and what it took in a visit; once a visit."""
    settings, store = load_settings(plans), RunStore(plans)
    for _, task in tasks_of(settings, tasks):
        attempts = [store.attempts[task.name, planner] for planner in settings.planners]
        loads = place_task(task, [each for each in attempts if each.placements], settings.seed).loads
        for seen in (visit for (name, _), visit in sorted(store.measured.items()) if name == task.name):
            yield from alone(loads, seen).items()


def alone(loads: dict[str, tuple[Load, ...]], seen: MeasuredVisit) -> dict[Case, Timed]:
    """The kernels of a task's ranks that run just one, with what they took in a visit."""
    distinct = {load for ranks in loads.values() for load in ranks if load}
    return {
        load[0]: Timed(forward_s, backward_s, seen.elapsed_s / len(distinct), seen)
        for planner, ranks in loads.items()
        for load, (forward_s, backward_s) in zip(ranks, seen.kernels[planner].tolist(), strict=True)
        if len(load) == 1
    }


def row_of(case: Case, seen: Timed) -> Row:
    """A kernel and what it took, as columns of measurements."""
    bins, visit = reuse_bins(case), seen.visit
    return {
        **case_columns(case, SCALE), "unique_rows": bins.sum(axis=1).tolist(), "reuse_bins": bins.ravel().tolist(),
        "status": "ok", "forward_s": seen.forward_s, "backward_s": seen.backward_s, "forward_median_s": None,
        "backward_median_s": None, "forward_wall_s": None, "backward_wall_s": None, "repetitions": LEAST,
        "spread": None, "probe_s": visit.probe_s, "probe_moved": None, "message": "", "elapsed_s": seen.elapsed_s,
        "device": visit.device, "versions": visit.versions, "date": visit.date,
    }  # fmt: skip


if __name__ == "__main__":
    main()
