"""The tables of advise.py: predicted and measured gains of every switch and pair, and how often advice was right."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from recsmith.scoring.scores import mean_within

Row = dict[str, Any]
LEAST = 0.02  # of a step: gains below it are none
CLOCKS = ("wall_s", "cpu_s")
TITLES = {  # of the tables, by what the prediction was made from
    "before": "Predicted before the job was measured",
    "alone": "Predicted again, from the run alone",
    "capture": "Predicted again, with a capture of the run as it is",
}


def show_tables(rows: Sequence[Row]) -> None:
    """Print, for each kind of prediction, a table of all cells, and how good the advice is by each clock."""
    for way in dict.fromkeys(row.get("by", "before") for row in rows if "told" in row):
        print(f"\n## {TITLES[way]}\n")
        show_told(rows, {row["job"]: row for row in rows if "told" in row and row.get("by", "before") == way})


def show_told(rows: Sequence[Row], jobs: Mapping[str, Row]) -> None:
    """Print the table and the answers for one kind of prediction. jobs: the row with the prediction, by job."""
    found = {clock: {name: gains_of(rows, name, told, clock) for name, told in jobs.items()} for clock in CLOCKS}
    print("| job | change | advice | predicted gain | by the clock | CPU of the busiest rank | seeds |")
    print("|---" * 7 + "|")
    for name, told in jobs.items():
        for kind, cell in told["told"].items():
            wall, cpu = found["wall_s"][name].get(kind), found["cpu_s"][name].get(kind)
            if wall is not None and cpu is not None:
                gain = f"{cell['gain']:+.1%} ±{cell['error']:.1%}"
                print(f"| {name} | {kind} | {cell['verdict']} | {gain} | {shown(wall)} | {shown(cpu)} | {len(wall)} |")
    for clock in CLOCKS:
        print(f"\nby {'the clock' if clock == 'wall_s' else 'CPU seconds of the busiest rank'}:")
        for line in asked(jobs, found[clock]):
            print(f"- {line}")


def gains_of(rows: Sequence[Row], name: str, told: Row, clock: str) -> dict[str, list[float]]:
    """The gain of each kind, seed by seed: of all its blocks together, beside those of the run as it is."""
    took = {
        (row["kind"], row["seed"]): [each / row["samples"] for each in row[f"{clock[:-2]}s_s"]]
        for row in rows
        if row["job"] == name and clock in row
    }
    seeds = sorted({seed for kind, seed in took if not kind})
    found = {
        kind: [gain_of(took[kind, seed], took["", seed]) for seed in seeds if (kind, seed) in took]
        for kind in told["told"]
    }
    return {kind: each for kind, each in found.items() if each}


def gain_of(some: Sequence[float], base: Sequence[float]) -> float:
    """The gain of all blocks of steps; a median of few blocks would leave out those in which a window is read."""
    return 1 - sum(some) / sum(base)


def shown(gains: Sequence[float]) -> str:
    """A mean gain with its interval."""
    mean, within = mean_within(gains)
    return f"{mean:+.1%}" if within is None else f"{mean:+.1%} ±{within:.1%}"


def asked(jobs: Mapping[str, Row], found: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """How good the advice is: one sentence for each question."""
    best, listed, regrets, likely, greedy = 0, 0, list[str](), list[str](), list[str]()
    signs, inside, errors = list[bool](), list[bool](), list[float]()
    for name, told in jobs.items():
        gains = {kind: statistics.fmean(each) for kind, each in found[name].items()}
        singles = {kind: gain for kind, gain in gains.items() if told["told"][kind]["verdict"] != "pair"}
        if not singles:
            continue
        top = max(singles, key=lambda kind: singles[kind])
        first = told["first"]
        given = gains.get(first, 0.0) if first else 0.0
        if name != "nothing":
            best += first == top or (first is not None and top in told["ties"].get(first, [])) or singles[top] < LEAST
            regrets.append(f"{name} {max(0.0, singles[top]) - given:.1%}")
            named = [kind for kind in singles if told["told"][kind]["verdict"] in ("pays", "tie")]
            listed += bool(named) and (named[0] == top or top in told["ties"].get(named[0], []))
            likeliest = first or max(named, key=lambda kind: told["told"][kind]["gain"], default=None)
            likely.append(f"{name} {max(0.0, singles[top]) - (singles[likeliest] if likeliest else 0.0):.1%}")
            pairs = {kind: gain for kind, gain in gains.items() if kind not in singles}
            together = " and ".join(told["together"][:2])
            reached = gains.get(together, gains.get(" and ".join(reversed(told["together"][:2])), given))
            greedy.append(f"{name} {max([*pairs.values(), *singles.values(), 0.0]) - reached:.1%}")
        for kind, each in found[name].items():
            mean, within = mean_within(each)
            cell = told["told"][kind]
            inside.append(abs(mean - cell["gain"]) <= cell["error"] + (within or 0.0))
            if within is not None and abs(mean) > within:
                signs.append((mean > 0) == (cell["gain"] > 0))
                errors.append(abs(cell["gain"] - mean) / abs(mean))
    nothing = jobs.get("nothing")
    return [
        f"the first change predicted to pay is the best, or a named tie of it, in {best} of {len(regrets)} jobs",
        f"the first change that pays or may pay is the best, or a named tie of it, in {listed} of {len(regrets)} jobs",
        f"lost by taking the first change predicted to pay instead of the best: {', '.join(regrets)} of a step",
        f"the same, but taking the likeliest change that advice names if none is predicted to pay: {', '.join(likely)}",
        f"the sign is right in {share(signs)} cells whose measured interval excludes 0",
        f"the median relative error of the gain in these cells is {statistics.median(errors):.0%}" if errors
        else "no cell has a measured interval that excludes 0",
        f"the predicted and the measured interval overlap in {share(inside)} cells",
        f"the combination that advice names is behind the best pair by {', '.join(greedy)}",
        "if nothing pays, advice says so" if nothing and nothing["first"] is None
        else f"if nothing pays, advice names {nothing['first'] if nothing else 'nothing yet'}",
    ]  # fmt: skip


def share(some: Sequence[bool]) -> str:
    """How many are True, of how many, with the percentage."""
    return f"{sum(some)} of {len(some)} ({sum(some) / len(some):.0%})" if some else "0 of 0"
