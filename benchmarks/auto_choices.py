"""What `auto` chooses by a predicted step, beside jobs with and without it that are trained in turn.

    python benchmarks/auto_choices.py tell                                   # what is predicted, and what asking takes
    python benchmarks/auto_choices.py measure --rows auto.jsonl --jobs narrow-2,balance-1   # goes on; minutes, idle
    python benchmarks/auto_choices.py table --rows auto.jsonl

Table of docs/advise.md. Jobs of two ranks around the thresholds that narrow layers, dealt histories, distinct bags and
searches of widths had of their own: a share of a step of 5 %, a busiest rank with 1.2 times the mean work, 1.5 samples
for each distinct bag, and 5 % of what is priced of a step. Trainings of a job take turns, each in processes of its own,
as those of advise.py do. Of narrow layers all measured steps are narrow, and count as many as they are of a job of
20,000 steps; of a search, the cheapest sample is trained.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advise import add_row, read_rows, train_all, training
from balance import MODEL
from dry_run import Words, a_run

from recsmith.analyses.paying import gain_of, pays
from recsmith.scoring.scores import mean_within
from recsmith.searching.space import SpaceOptions
from recsmith.training import Run, RunData, RunModel, run_from_raw, run_to_raw
from recsmith.training.launch.dry_run import described
from recsmith.training.run import load_run

STEPS, NARROW = 20_000, 0.68  # of a job that is narrow for a time, and the share of them that is narrow
NARROW_AT_ONCE = 'model.narrow={"cycles": 1, "dense_at_start": 0.000012}'  # of a million steps, all but the first ten
SEED = 31  # of data and runs: those of other tables are others


@dataclass(frozen=True)
class Told:
    """Seconds of a step without and with; whether the rule before would have taken it, and by which figure."""

    without_s: float
    with_s: float
    before: bool
    figure: str


# --- narrow layers ----------------------------------------------------------------------------------------------------


def narrow(folder: str, *, top: tuple[int, ...], batch: int, tables: int = 8, ids: float = 1.0) -> Run:
    made = a_run(f"{folder}/out", tables=tables, ids=ids, ranks=2, batch=batch, top=top, bottom=(32,))
    return replace(seeded(made), steps=STEPS)


def told_of_narrow(run: Run) -> Told:
    plain, with_ = (step_s(run, *words) for words in ((), ("model.narrow={}",)))
    return Told(plain, with_, gain_of(plain, with_) >= 0.05, f"{gain_of(plain, with_):.1%} of a step")


# --- dealt histories --------------------------------------------------------------------------------------------------


def histories(folder: str, *, events: int, longest: int, batch: int, columns: int = 32) -> Run:
    data = {"format": "sequences", "generated": {"users": 1500, "items": 2000, "events": events, "seed": SEED},
            "longest": longest, "negatives": 1, "split": "train"}  # fmt: skip
    made = a_run(f"{folder}/out", ranks=2)
    return replace(
        made, data=RunData(train=data, batch_size=batch),
        model=RunModel(name="hstu", embedding_dim=columns, arguments={**MODEL, "longest": longest}),
    )  # fmt: skip


def told_of_histories(run: Run) -> Told:
    from recsmith.training.sources import first_steps, open_source
    from recsmith.training.systems.balance.deciding import deal_of, spread_of

    plain, with_ = (step_s(run, *words) for words in ((), ("data.balance=histories",)))
    deal = deal_of(run)
    assert deal is not None
    first = first_steps(open_source(run), deal.feature, 2, run.data.local_batch_size(2), 1)
    stored = spread_of(deal, first, 2).stored
    return Told(plain, with_, stored >= 1.2, f"{stored:.2f} times the mean work")


# --- distinct bags ----------------------------------------------------------------------------------------------------


def bags(folder: str, *, chance: float, ids: float, size: int = 8, columns: int = 64, batch: int = 1024) -> Run:
    made = a_run(f"{folder}/out", tables=6, rows=300_000, ids=ids, ranks=2, batch=batch, columns=columns)
    raw: Any = run_to_raw(seeded(made))
    train = raw["data"]["train"]
    some = [{**each, "lengths": "poisson", "zipf": 1.1, "duplication": chance} for each in train["features"]]
    train = {**train, "features": some, "sessions": {"size": size}}
    return run_from_raw({**raw, "data": {**raw["data"], "train": train, "keep_together": size}}, "a job")


def told_of_bags(run: Run) -> Told:
    from recsmith.data.deduplication import dedup_groups
    from recsmith.training.sources import first_batch, open_source

    groups = dedup_groups(first_batch(open_source(run), run.data.largest_batch, shuffle=True))
    factor = statistics.fmean(each.factor for each in groups)
    plain, with_ = (step_s(run, *words) for words in ((), (all_bags(run),)))
    return Told(plain, with_, factor >= 1.5, f"{factor:.2f} samples a bag")


def all_bags(run: Run) -> str:
    names = [[each["name"]] for each in run_to_raw(run)["data"]["train"]["features"]]
    return f"data.deduplicate={json.dumps(names)}"


# --- searches of widths -----------------------------------------------------------------------------------------------


def widths(folder: str, *, columns: int, ids: float, layers: tuple[int, ...], batch: int = 512) -> Run:
    made = seeded(a_run(f"{folder}/out", tables=6, rows=50_000, ids=ids, ranks=2, batch=batch, columns=columns,
                        top=layers))  # fmt: skip
    return replace(made, data=replace(made.data, test=made.data.train))


def cheapest(run: Run) -> tuple[Any, tuple[str, ...]]:
    from recsmith.searching.samples import settings_of
    from recsmith.training.systems.search.searching import NetworkSearch, prepare

    made = prepare(run, NetworkSearch(price="step", options=SpaceOptions(widths=(8,))), run.output)
    return made, settings_of(made.space, made.space.cheapest, made.priced.sizes)


def told_of_widths(run: Run) -> Told:
    from recsmith.training.sources import open_source
    from recsmith.training.systems.search.searching import sample_step_s

    made, _ = cheapest(run)
    plain, with_ = (
        sample_step_s(made.run, open_source(run), made.priced, made.space, picks, {})
        for picks in (made.space.largest, made.space.cheapest)
    )
    before = gain_of(made.space.whole, made.space.price(made.space.cheapest))
    return Told(plain, with_, before >= 0.05, f"{before:.1%} of tables and layers")


# --- the jobs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A system: how its jobs are made, what is told of one, the settings that switch it on, and the share of steps."""

    make: Callable[..., Run]
    told: Callable[[Run], Told]
    on: Callable[[Run], tuple[str, ...]]
    share: float = 1.0


KINDS = {
    "narrow": Kind(narrow, told_of_narrow, lambda _: (NARROW_AT_ONCE,), NARROW),
    "balance": Kind(histories, told_of_histories, lambda _: ("data.balance=histories",)),
    "bags": Kind(bags, told_of_bags, lambda run: (all_bags(run),)),
    "widths": Kind(widths, told_of_widths, lambda run: cheapest(run)[1]),
}
JOBS: Mapping[str, Words] = {
    "narrow-1": {"top": (192, 128), "batch": 256, "ids": 20.0},
    "narrow-2": {"top": (256, 128), "batch": 256},
    "narrow-3": {"top": (256, 256), "batch": 512, "ids": 20.0},
    "narrow-4": {"top": (384, 256), "batch": 256, "ids": 10.0},
    "narrow-5": {"top": (256, 128), "batch": 512},
    "balance-1": {"events": 30, "longest": 60, "batch": 16},
    "balance-2": {"events": 40, "longest": 100, "batch": 32},
    "balance-3": {"events": 60, "longest": 200, "batch": 64},
    "balance-4": {"events": 100, "longest": 300, "batch": 64},
    "balance-5": {"events": 100, "longest": 300, "batch": 16},
    "bags-1": {"chance": 0.3, "ids": 20.0},
    "bags-2": {"chance": 0.4, "ids": 40.0},
    "bags-3": {"chance": 0.5, "ids": 20.0, "columns": 512, "batch": 256},
    "bags-4": {"chance": 0.6, "ids": 40.0, "columns": 256, "batch": 512},
    "bags-5": {"chance": 0.8, "ids": 20.0, "columns": 128, "batch": 512},
    "bags-6": {"chance": 0.9, "ids": 60.0, "size": 16},
    "widths-1": {"columns": 16, "ids": 1.0, "layers": (512, 256)},
    "widths-2": {"columns": 32, "ids": 2.0, "layers": (512, 256)},
    "widths-3": {"columns": 32, "ids": 4.0, "layers": (256, 128)},
    "widths-4": {"columns": 64, "ids": 2.0, "layers": (512, 256)},
}


def kind_of(name: str) -> Kind:
    return KINDS[name.partition("-")[0]]


def seeded(run: Run) -> Run:
    """With data of another seed."""
    raw: Any = run_to_raw(run)
    return run_from_raw({**raw, "data": {**raw["data"], "train": {**raw["data"]["train"], "seed": SEED}}}, "a job")


def step_s(run: Run, *settings: str) -> float:
    """Seconds of a step of a dry run."""
    found = described(load_run(run, settings)).step
    assert found is not None  # this machine has no GPU
    return found.step_s


def told_row(name: str) -> Words:
    """What is told of a job."""
    with tempfile.TemporaryDirectory() as folder:
        run, begun = kind_of(name).make(folder, **JOBS[name]), time.process_time()
        found = kind_of(name).told(run)
        gain = gain_of(found.without_s, found.with_s)
        return {"job": name, "told": gain, "step_s": found.without_s, "taken": pays(gain), "before": found.before,
                "figure": found.figure, "cpu_s": time.process_time() - begun}  # fmt: skip


def tell(names: list[str]) -> None:
    """What is told of each job."""
    print("| job | figure of the old rule | taken before | predicted | taken now | CPU s |\n|---|---|---|---|---|---|")
    for name in names:
        row = told_row(name)
        print(f"| {name} | {row['figure']} | {row['before']} | {row['told']:+.1%} of {row['step_s'] * 1e3:.1f} ms | "
              f"{row['taken']} | {row['cpu_s']:.1f} |", flush=True)  # fmt: skip


def measure(names: list[str], rows: Path, seeds: int, blocks: int) -> None:
    """Train each job with and without, in turn."""
    there = read_rows(rows)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            run = kind_of(name).make(folder, **JOBS[name])
            kinds = {"": (), "on": kind_of(name).on(run)}
            if not any(each["job"] == name and "told" in each for each in there):
                add_row(rows, told_row(name))
            done = {(each["kind"], each["seed"]) for each in there if each["job"] == name and "wall_s" in each}
            trainings = [
                training(name, run, kind, seed, settings)
                for seed in range(SEED, SEED + seeds) for kind, settings in kinds.items() if (kind, seed) not in done
            ]  # fmt: skip
            if trainings:
                train_all(trainings, rows, 99.0, blocks, ranks=2, linked=False)


def table(rows: Path) -> None:
    """Predicted gains beside measured ones."""
    there = read_rows(rows)
    print("| job | figure of the old rule | then | predicted | now | measured | faster |\n" + "|---" * 7 + "|")
    for told in (each for each in there if "told" in each):
        took = {(each["kind"], each["seed"]): each["wall_s"] for each in there
                if each["job"] == told["job"] and "wall_s" in each}  # fmt: skip
        share = kind_of(told["job"]).share
        gains = [share * gain_of(took["", seed], took["on", seed]) for kind, seed in took
                 if kind == "on" and ("", seed) in took]  # fmt: skip
        if gains:
            mean, within = mean_within(gains)
            beside = "" if within is None else f" ±{within:.1%}"
            print(f"| {told['job']} | {told['figure']} | {_word(told['before'])} | {told['told']:+.1%} | "
                  f"{_word(told['taken'])} | {mean:+.1%}{beside} | {_word(mean > 0)} |")  # fmt: skip


def _word(taken: bool) -> str:
    return "on" if taken else "off"


def main() -> None:
    """Tell, measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tell", "measure", "table"])
    parser.add_argument("--rows", type=Path, default=Path("auto.jsonl"))
    parser.add_argument("--jobs", default=",".join(JOBS), help="by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=4, help="of 16 steps, of each training")
    chosen = parser.parse_args()
    names = chosen.jobs.split(",")
    if chosen.what == "tell":
        tell(names)
    elif chosen.what == "measure":
        measure(names, chosen.rows, chosen.seeds, chosen.blocks)
    else:
        table(chosen.rows)


if __name__ == "__main__":
    main()
