"""What others published of a change of their job, beside what `recsmith advise` says of the same job. No GPU is needed.

    python benchmarks/advise_ladders.py

Table of docs/advise.md. Only what has a source that was read is here, and of that only what advice prices on
a cluster: tables, links and devices. Published gains are of whole steps, and predicted ones of what embeddings take of
a step, so signs and order are compared, not sizes.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from recsmith.analyses.table_switches import advise
from recsmith.workloads import Workload, load_workload

CONFIGURATION = "comments in the configuration of MLPerf Training v6.1 dlrm_v4_hstu (mlcommons/training#889)"


@dataclass(frozen=True)
class Rung:
    """A published change. cluster: like that of the source. published: the share of a step that it saved."""

    change: str
    cluster: str
    published: float
    source: str


RUNGS = (
    Rung("equal ids once", "mi350x:8x2", 0.26, CONFIGURATION),
    Rung("equal ids once", "mi350x:8", 0.14, CONFIGURATION),
    Rung("fp16 and bf16 between devices", "mi350x:8", 0.06, CONFIGURATION),
)  # from the largest on


def job(change: str) -> Workload:
    """The job before a change: MLPerf's tables, equal ids looked up each time, fp32 sent where that is changed."""
    tables = replace(load_workload("dlrm-v4"), index_dedup="off")
    return replace(tables, comm_dtype=None) if change.startswith("fp16") else tables


def main() -> None:
    """The table, and whether signs and order agree."""
    found: list[float] = []
    print("| change | devices | published | predicted | sign |\n|---|---|---|---|---|")
    for rung in RUNGS:
        advice = advise(job(rung.change), rung.cluster)
        told = next(each for each in advice.switches if each.switch.name == rung.change)
        found.append(told.gain)
        sign = "right" if (told.gain > 0) == (rung.published > 0) else "wrong"
        print(f"| {rung.change} | {rung.cluster} | {rung.published:+.0%} of a step, from {rung.source} | "
              f"{told.gain:+.1%} ±{told.gain_error:.1%} of the embeddings' part | {sign} |", flush=True)  # fmt: skip
    right = sum(first > second for first, second in pairwise(found))
    print(f"\n{right} of {len(found) - 1} neighbours stand in the published order")


if __name__ == "__main__":
    main()
