"""Arrays: exact losses of members, and models a second together beside in turn.

    python benchmarks/arrays.py exact          # losses of 100 steps beside those of members' own runs, 1 and 2 ranks
    python benchmarks/arrays.py rounding       # 1,000 steps on hot ids: a member, and what one rounding makes of a run
    python benchmarks/arrays.py pairs          # seconds of steps together and alone, in turn, and the gain predicted
    python benchmarks/arrays.py pairs --only small,mlperf

Tables of docs/array.md. `--rows FILE` keeps what was measured, and goes on from there.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from recsmith.jobs.launch import launch
from recsmith.training import (
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    run_to_raw,
)
from recsmith.training.systems.arrays.members import members_of
from recsmith.training.systems.arrays.settings import RunArray

RANKS, MEMBERS, EXACT_STEPS = 2, 4, 100
STEPS, WARM, ROUNDS = 30, 8, 3  # of a job; the first ones are left out of its seconds
MLPERF = {"bottom": (512, 256), "top": (512, 256)}
CASES: dict[str, dict[str, Any]] = {  # name, and what differs from `small`
    "small": {},
    "small of 2": {"members": 2},
    "small of 8": {"members": 8},
    "batch 1024": {"batch": 1024},
    "8 tables": {"tables": 8},
    "64 columns": {"columns": 64},
    "mlperf": {"batch": 512, **MLPERF},
    "mlperf of 2": {"batch": 512, "members": 2, **MLPERF},
    "dlrm_dcn": {"name": "dlrm_dcn", "cross_rank": 16},
    "widths differ": {"widths": True},
    "1 rank": {"ranks": 1},
    "3 tables": {"tables": 3},
}
LONG_STEPS = 1000
ROUNDINGS: dict[str, dict[str, Any]] = {  # what differs from a run of its own, which is first
    "as it is": {},
    "alone, with the fused Adam of arrays": {"arguments": {"fused": True}},
    "alone, with a rate that is 1e-7 of itself higher": {"learning_rate": 0.001 * (1 + 1e-7)},
}
NOTES: list[tuple[float, float]] = []  # of this rank: wall and CPU seconds when each step ended


def an_array(
    folder: Path, *, members: int = MEMBERS, tables: int = 26, columns: int = 16, batch: int = 256,
    widths: bool = False, ranks: int = RANKS, fused: bool = False, **model: Any,
) -> Run:  # fmt: skip
    """An array of DLRMs whose learning rates differ, and their layers where widths do."""
    features = [{"name": f"f{number}", "num_embeddings": 2000} for number in range(tables)]
    words: dict[str, Any] = {"bottom": (64,), "top": (64, 32), **model}
    settings = {
        f"m{number}": (
            f"seed={number}", f"optimizers.dense.learning_rate={0.001 * (1 + number)}",
            *([f"model.top=[{64 + 8 * number}, 32]"] if widths else []),
        )
        for number in range(members)
    }  # fmt: skip
    return Run(
        data=RunData(
            train={"format": "generator", "seed": 7, "num_samples": 10_000_000, "dense": 13, "features": features},
            batch_size=batch,
        ),
        model=RunModel(embedding_dim=columns, **words),
        output=str(folder), ranks=ranks, steps=STEPS, checkpoint=None, metrics=RunMetrics(every=10),
        optimizers=RunOptimizers(dense=DenseOptimizer(arguments={"fused": True} if fused else None)),
        array=RunArray(members=settings, together="always"),
    )  # fmt: skip


def train_all(runs: list[dict[str, Any]]) -> None:
    """Train runs one after another on this rank of a job."""
    from recsmith.training.rank import train_on_rank

    for run in runs:
        train_on_rank(run)


def losses_of(folder: Path) -> list[float]:
    """Losses of all steps of a job."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def show_exact(quick: bool) -> None:
    """How far losses of members are from those of their own runs."""
    print("| ranks | members | steps | largest relative difference of losses |\n|---|---|---|---|")
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            array = an_array(Path(name, "array"), members=3, widths=True, batch=128, ranks=ranks, tables=8)
            array = replace(array, steps=10 if quick else EXACT_STEPS, metrics=RunMetrics(every=1))
            alone = [replace(run, output=f"{name}/alone-{each}") for each, run in members_of(array).items()]
            launch("arrays:train_all", {"runs": [run_to_raw(run) for run in (array, *alone)]}, ranks=ranks)
            apart = max(
                abs(a / b - 1)
                for each, run in zip(members_of(array), alone, strict=True)
                for a, b in zip(losses_of(Path(name, "array", each)), losses_of(Path(run.output)), strict=True)
            )
        print(f"| {ranks} | {len(alone)} | {array.steps} | {apart:.1e} |", flush=True)


def show_rounding(quick: bool) -> None:
    """How far a member is from its own run, beside what roundings of other kinds make of that run."""
    with tempfile.TemporaryDirectory() as name:
        array = an_array(Path(name, "array"), members=2, batch=128, ranks=1, tables=8)
        words: Any = array.data.train
        hot = {**words, "features": [{**each, "zipf": 1.2} for each in words["features"]]}
        array = replace(array, data=replace(array.data, train=hot), metrics=RunMetrics(every=20))
        array = replace(array, steps=40 if quick else LONG_STEPS)
        own = members_of(array)["m0"]
        arms = {kind: replace(_with(own, settings), output=f"{name}/{kind}") for kind, settings in ROUNDINGS.items()}
        launch("arrays:train_all", {"runs": [run_to_raw(run) for run in (array, *arms.values())]}, ranks=1)
        folders = {"a member of an array of two": Path(name, "array", "m0")}
        folders |= {kind: Path(run.output) for kind, run in arms.items()}
        expected, whole = losses_of(folders["as it is"]), _weights(folders["as it is"])
        shown = [step for step in (40, 100, 300, 1000) if step <= (array.steps or 0)]
        print(f"| the run | {' | '.join(f'loss of 20 steps up to {step:,}' for step in shown)} | weights, at the end |")
        print("|---" * (2 + len(shown)) + "|")
        for kind, folder in folders.items():
            if kind == "as it is":
                continue
            found, weights = losses_of(folder), _weights(folder)
            apart = [abs(found[step // 20 - 1] / expected[step // 20 - 1] - 1) for step in shown]
            most = max(float((weights[key] - whole[key]).abs().max() / whole[key].abs().max()) for key in whole)
            print(f"| {kind} | {' | '.join(f'{each:.1e}' for each in apart)} | {most:.1e} |", flush=True)


def _with(run: Run, settings: dict[str, Any]) -> Run:
    return replace(run, optimizers=replace(run.optimizers, dense=replace(run.optimizers.dense, **settings)))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "weights.safetensors")


def pair_on_rank(together: dict[str, Any], alone: list[dict[str, Any]], rounds: int) -> list[dict[str, float]]:
    """Medians of wall and CPU seconds of a step of this rank, of the array and of one of its members, in turn."""
    from recsmith.training.rank import train_on_rank
    from recsmith.training.steps.pipelines import BasePipeline

    torch.set_num_threads(1)
    step = BasePipeline.__call__

    def noted(self: Any, batches: Any) -> Any:
        made = step(self, batches)
        NOTES.append((time.perf_counter(), time.process_time()))
        return made

    BasePipeline.__call__ = noted  # type: ignore[method-assign]
    found: list[dict[str, float]] = []
    for number in range(rounds):
        made: dict[str, float] = {}
        order = [("together", together), ("alone", alone[number % len(alone)])]
        for name, run in order[:: -1 if number % 2 else 1]:
            NOTES.clear()
            raw = {**run, "output": f"{run['output']}-{number}"}
            train_on_rank(raw)
            between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(NOTES[WARM:])]
            wall, cpu = (statistics.median(each) for each in zip(*between, strict=True))
            made |= {f"{name}_wall_s": wall, f"{name}_cpu_s": cpu}
        found.append(made)
    return found


def measured(case: str, rounds: int) -> dict[str, Any]:
    """Seconds of steps of a case, and the gain that is predicted for it."""
    from recsmith.training.sources import open_source
    from recsmith.training.systems.arrays.weighing import step_here, weighed

    with tempfile.TemporaryDirectory() as name:
        array = an_array(Path(name, "array"), **CASES[case])
        alone = [run_to_raw(replace(run, output=f"{name}/alone")) for run in members_of(array).values()]
        arguments = {"together": run_to_raw(array), "alone": alone, "rounds": rounds}
        pairs = launch("arrays:pair_on_rank", arguments, ranks=array.ranks or RANKS)[0]
        assert array.array is not None
        count = len(array.array.members)
        gains = {
            what: [count * each[f"alone_{what}_s"] / each[f"together_{what}_s"] for each in pairs]
            for what in ("wall", "cpu")
        }
        gain, _ = weighed(array, open_source(array), array.ranks or RANKS, torch.device("cpu"), step_here)
        middle = {key: statistics.median(each[key] for each in pairs) for key in pairs[0]}
        return {"case": case, "members": count, **middle, "wall": gains["wall"], "cpu": gains["cpu"],
                "predicted": gain.value}  # fmt: skip


def show_pairs(only: list[str], rounds: int, rows: Path | None) -> None:
    """Models a second together, beside in turn."""
    kept = json.loads(rows.read_text()) if rows is not None and rows.exists() else {}
    print(
        "| case | step of a model alone: wall, CPU | of the array | models a second, wall | CPU time | predicted |"
        "\n|---|---|---|---|---|---|"
    )
    for case in only:
        row = kept.get(case) or measured(case, rounds)
        kept[case] = row
        if rows is not None:
            rows.write_text(json.dumps(kept))
        alone, together = (
            f"{row[f'{each}_wall_s'] * 1e3:.1f}, {row[f'{each}_cpu_s'] * 1e3:.1f} ms" for each in ("alone", "together")
        )
        wall, cpu = (f"{statistics.median(row[each]):.2f} ({min(row[each]):.2f} to {max(row[each]):.2f})"
                     for each in ("wall", "cpu"))  # fmt: skip
        print(f"| {case} | {alone} | {together} | {wall} | {cpu} | {row['predicted']:.2f} |", flush=True)


def main() -> None:
    """One of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("exact", "rounding", "pairs"))
    parser.add_argument("--only", default=",".join(CASES), help="cases, by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer steps, to see that it runs")
    chosen = parser.parse_args()
    if chosen.table == "exact":
        show_exact(chosen.quick)
    elif chosen.table == "rounding":
        show_rounding(chosen.quick)
    else:
        cases = chosen.only.split(",")
        show_pairs(cases[:1] if chosen.quick else cases, 1 if chosen.quick else chosen.rounds, chosen.rows)


if __name__ == "__main__":
    main()
