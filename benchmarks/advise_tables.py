"""The tables of advise.py: every switch and pair, told beside measured, and how often the advice was right."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from recsmith.scoring.scores import mean_within

Row = dict[str, Any]
LEAST = 0.02  # of a step: gains below it are none
CLOCKS = ("wall_s", "cpu_s")


def show_tables(rows: Sequence[Row]) -> None:
    """A table of all cells, and what was asked of the advice, by each clock; of each way in which it was told."""
    for way in dict.fromkeys(row.get("by", "before") for row in rows if "told" in row):
        print(f"\n## told {way}\n")
        show_told(rows, {row["job"]: row for row in rows if "told" in row and row.get("by", "before") == way})


def show_told(rows: Sequence[Row], jobs: Mapping[str, Row]) -> None:
    """The same of one way: rows of what was told, by job."""
    found = {clock: {name: gains_of(rows, name, told, clock) for name, told in jobs.items()} for clock in CLOCKS}
    print("| job | change | advice | gain told | by the clock | CPU of the busiest rank | seeds |\n" + "|---" * 7 + "|")
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
    """How the advice did, in a sentence for each thing that was asked."""
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
        f"the first that is told to pay is best, or a named tie of the best, in {best} of {len(regrets)} jobs",
        f"the first of the list, which pays or may, is best, or a named tie of the best, in {listed} of {len(regrets)}",
        f"what is lost by taking what is told to pay in place of the best: {', '.join(regrets)} of a step",
        f"and where none is, by taking the likeliest that the advice names: {', '.join(likely)}",
        f"the sign is right in {share(signs)} cells whose interval leaves 0 out",
        f"of those, gains are off by {statistics.median(errors):.0%} of themselves in the median" if errors
        else "no cell has an interval that leaves 0 out",
        f"measured gains are inside of the told interval in {share(inside)} cells",
        f"the set that is told together is behind the best pair by {', '.join(greedy)}",
        "where nothing pays, the advice says so" if nothing and nothing["first"] is None
        else f"where nothing pays, the advice names {nothing['first'] if nothing else 'nothing yet'}",
    ]  # fmt: skip


def share(some: Sequence[bool]) -> str:
    """So many of all."""
    return f"{sum(some)} of {len(some)} ({sum(some) / len(some):.0%})" if some else "0 of 0"
