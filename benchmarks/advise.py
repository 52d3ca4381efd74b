"""What `recsmith advise` tells of a run, beside the same run with each switch, trained in turn.

    python benchmarks/advise.py                        # four jobs; the machine must be idle
    python benchmarks/advise.py --only layers --rounds 1

Table of docs/benchmarks/advise.md. The jobs were fixed before any of them was measured. A step is the median between
two steps on the slower rank, of all rounds; a gain is a share of the device seconds of a sample. Narrow layers, whose
phases are longer than these jobs, are measured on docs/benchmarks/narrow.md, towers on docs/benchmarks/towers.md.
"""

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from dry_run import Words, a_run, measure

from recsmith.analyses.advice import Advice
from recsmith.training import Run, run_to_raw
from recsmith.training.launch.advising import advise_run
from recsmith.training.run import load_run

SESSIONS = {"sessions": {"size": 8}}
JOBS: dict[str, Words] = {
    "lookups": {"tables": 6, "rows": 300_000, "ids": 20.0, "ranks": 2, "batch": 1024, "columns": 64},
    "sessions": {"tables": 6, "rows": 300_000, "ids": 20.0, "ranks": 2, "batch": 1024, "columns": 64},
    "layers": {
        "tables": 3, "rows": 100_000, "ranks": 2, "columns": 32, "bottom": (512, 256), "top": (1024, 512, 256),
    },
    "nothing": {"tables": 8, "rows": 20_000, "batch": 4096, "columns": 16, "bottom": (64,), "top": (64,)},
}  # fmt: skip
UNTRIED = ("narrow dense layers", "towers")


def job_of(name: str, folder: str) -> Run:
    """The run of a job."""
    made = a_run(f"{folder}/out", **JOBS[name])
    if name != "sessions":
        return made
    raw: Any = run_to_raw(made)
    train = {**raw["data"]["train"], **SESSIONS}
    train["features"] = [{**each, "lengths": "poisson", "duplication": 0.9} for each in train["features"]]
    data = {**raw["data"], "train": train, "keep_together": 8, "window": 16_384}
    return a_run(f"{folder}/out", **JOBS[name], words={"data": data})


def measured(name: str, rounds: int) -> tuple[Advice, dict[str, list[float]]]:
    """The advice on a job, and seconds of a step of each round as it is ('') and with each switch."""
    with tempfile.TemporaryDirectory() as folder:
        run = job_of(name, folder)
        advice = advise_run(run)
        kinds = {"": run} | {
            each.switch.name: load_run(run, each.switch.settings)
            for each in advice.switches
            if each.price is not None and each.switch.name not in UNTRIED
        }
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(rounds):
            for kind in list(kinds)[:: -1 if number % 2 else 1]:
                with tempfile.TemporaryDirectory() as own:
                    made = measure(replace(kinds[kind], output=f"{own}/out"))
                took[kind].append(max(each["wall_s"] for each in made))
                print(f"{name}, round {number + 1}, {kind or 'as it is'}: {took[kind][-1] * 1e3:.1f} ms", flush=True)
    return advice, took


def show(name: str, advice: Advice, took: dict[str, list[float]]) -> None:
    """Rows of the table."""
    base = statistics.median(took[""])
    for each in advice.switches:
        if each.switch.name not in took or each.price is None:
            continue
        more = each.price.samples / advice.base.samples
        steps = took[each.switch.name]
        gains = [1 - one / before / more for one, before in zip(steps, took[""], strict=True)]
        middle = 1 - statistics.median(steps) / base / more
        print(
            f"| {name} | {each.switch.name} | {each.verdict} | {each.gain:+.1%} ±{each.gain_error:.1%} | "
            f"{middle:+.1%} | {min(gains):+.1%} to {max(gains):+.1%} |"
        )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="jobs, by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=Path, help="keeps what was measured")
    chosen = parser.parse_args()
    found = {name: measured(name, chosen.rounds) for name in (chosen.only.split(",") if chosen.only else JOBS)}
    if chosen.rows is not None:
        chosen.rows.write_text(json.dumps({name: took for name, (_, took) in found.items()}, indent=1))
    print(f"\nload {os.getloadavg()[0]:.1f}\n")
    print("| job | switch | advice | gain told | measured | rounds |\n|---|---|---|---|---|---|")
    for name, (advice, took) in found.items():
        show(name, advice, took)


if __name__ == "__main__":
    main()
