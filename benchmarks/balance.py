"""Samples dealt to ranks by the work of their histories: how even the work is, and what a job gains.

    python benchmarks/balance.py work --data ml-latest-small     # seconds: work of the busiest rank over the mean
    python benchmarks/balance.py jobs                            # 4 minutes, alone: samples/s of jobs of two ranks
    python benchmarks/balance.py layers                          # 2 minutes: a dry run's layers beside CPU seconds

work: `format: sequences` of MovieLens and of generated events whose users have very different numbers of them, 64
samples a rank, the mean of 20 steps; padding is what a batch of one length would add. jobs: hstu on two ranks, with and
without data.balance, one after the other so many times; of users with 60 events in the mean, and with 150. layers:
forward and backward of the models of histories on batches of the same data on one thread, lookups of their small tables
among them.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.data import Batch, open_dataset, spec_from_raw
from recsmith.data.dealing import Deal
from recsmith.training import Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer, train
from recsmith.training.models import sequence_settings
from recsmith.training.models.work import layer_work

GENERATED = {"users": 3000, "items": 2000, "events": 60}
MODEL: dict[str, Any] = {"times": "times", "target_time": "target_time", "score": "dot"}
SIZE, STEPS, WIDTH, LONGEST = 64, 20, 32, 200
SHAPES = [
    (name, width, longest, blocks)
    for name, most in (("hstu", 2), ("sasrec", 2), ("din", 1))
    for width, longest, blocks in ((16, 50, 1), (32, 100, most), (64, 200, most))
]  # model, columns, longest history, blocks of attention


LONG = {**GENERATED, "users": 1500, "events": 150}
LONGER = 400  # events of a history of these


def events(longest: int = LONGEST, data: str | None = None) -> dict[str, Any]:
    generated = LONG if longest == LONGER else GENERATED
    made: dict[str, Any] = {"movielens": {"path": data, "max_user_id": 671}} if data else {"generated": generated}
    return {"format": "sequences", **made, "longest": longest, "negatives": 1, "split": "train"}


def deal() -> Deal:
    settings = sequence_settings("hstu", {**MODEL, "longest": LONGEST})
    assert settings is not None
    work = layer_work(settings, WIDTH, lengths=np.array([LONGEST]), others=0, labels=1)
    return Deal(feature="history", squared=work.pair_work, longest=LONGEST)


def even(spec: dict[str, Any], ranks: int, by: Deal | None) -> tuple[float, float]:
    """(work of the busiest rank over the mean, what padding to the longest of a batch would add), means of steps."""
    dataset, works, added = open_dataset(spec_from_raw(spec, "data")), [], []
    for rank in range(ranks):
        found: list[Batch] = []
        with dataset.batches(rank=rank, world_size=ranks, batch_size=SIZE, seed=0, drop_last=True, deal=by) as batches:
            found += [batch for _, batch in zip(range(STEPS), batches, strict=False)]
        lengths = [each.ids["history"].lengths.astype(np.int64) for each in found]
        works.append([deal().work(each).sum() for each in lengths])
        added += [each.max() * len(each) / each.sum() - 1 for each in lengths]
    each = np.array(works)
    return float((each.max(0) / each.mean(0)).mean()), float(np.mean(added))


def work(data: str | None) -> None:
    print("| events | ranks | busiest / mean, as stored | dealt | padding of a batch that would be padded |")
    print("|---|---|---|---|---|")
    for name, path in (("generated", None), *((("MovieLens", data),) if data else ())):
        for ranks in (2, 4, 8, 16):
            plain, padding = even(events(data=path), ranks, None)
            print(
                f"| {name} | {ranks} | {plain:.2f} | {even(events(data=path), ranks, deal())[0]:.3f} | {padding:.0%} |"
            )


def a_run(output: Path, balance: str | None, longest: int) -> Run:
    size, steps = (SIZE, 60) if longest == LONGEST else (SIZE // 2, 40)
    return Run(
        data=RunData(train=events(longest), batch_size=size, balance=balance), output=str(output), ranks=2, steps=steps,
        model=RunModel(name="hstu", embedding_dim=WIDTH, arguments={**MODEL, "longest": longest}),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.1)),
        metrics=RunMetrics(every=10), checkpoint=None,
    )  # fmt: skip


def rate(folder: Path) -> float:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    return float(np.median([line["samples_per_s"] for line in lines if line["event"] == "train"][1:]))


def jobs(repeats: int, longest: int) -> None:
    from recsmith.training.launch.dry_run import described

    gains: list[float] = []
    print("| longest history | as stored, samples/s | dealt | gain |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(repeats):
            rates = {}
            for name in (None, "histories") if number % 2 else ("histories", None):
                output = Path(scratch) / f"{number}-{name}"
                train(a_run(output, name, longest))
                rates[name] = rate(output)
            gains.append(rates["histories"] / rates[None])
            print(f"| {longest} | {rates[None]:,.0f} | {rates['histories']:,.0f} | {gains[-1]:.2f} |", flush=True)
        plain, dealt = (described(a_run(Path(scratch) / "x", name, longest)).step for name in (None, "histories"))
    assert plain is not None
    assert dealt is not None
    print(f"median gain {np.median(gains):.2f}; a dry run tells {plain.step_s / dealt.step_s:.2f}")


def layers() -> None:
    import torch

    from recsmith.prediction.histories import history_layers_s
    from recsmith.training.batches import as_tensors
    from recsmith.training.job.models import build_task
    from recsmith.training.job.run_step import _different
    from recsmith.training.tables.plain import features_of

    torch.set_num_threads(1)
    print("| model | columns | longest | predicted | measured | predicted / measured |\n|---|---|---|---|---|---|")
    for name, width, longest, blocks in SHAPES:
        dataset, own = open_dataset(spec_from_raw(events(longest), "data")), MODEL if name == "hstu" else {}
        arguments = {"longest": longest, **({} if name == "din" else {"blocks": blocks}), **own}
        model = RunModel(name=name, embedding_dim=width, arguments=arguments)
        task = build_task(model, dataset.schema, seed=0, tables_on="cpu")
        with dataset.batches(rank=0, world_size=1, batch_size=SIZE, seed=0) as batches:
            found = [next(batches) for _ in range(8)]
        tensors = [as_tensors(batch, features_of(task)) for batch in found]
        settings = sequence_settings(name, arguments)
        assert settings is not None
        lengths = np.concatenate([each.ids["history"].lengths.astype(np.int64) for each in found])
        made = layer_work(settings, width, lengths=lengths, others=0, labels=1)
        predicted = history_layers_s(replace(made, different=_different(lengths, SIZE)), SIZE)
        best = min(timed(task, tensors) for _ in range(5))
        told = f"{1e3 * predicted:.1f} ms | {1e3 * best:.1f} ms | {predicted / best:.2f}"
        print(f"| {name} | {width} | {longest} | {told} |")


def timed(task: Any, batches: list[Any]) -> float:
    """CPU seconds of forward and backward of a model on a batch, its small tables among them."""
    begun = time.process_time()
    for batch in batches:
        task.model(batch.dense_features, batch.sparse_features).sum().backward()
    return (time.process_time() - begun) / len(batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("work", "jobs", "layers"))
    parser.add_argument("--data", help="the folder of MovieLens")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.part == "work":
        work(given.data)
    elif given.part == "jobs":
        for longest in (LONGEST, LONGER):
            jobs(given.repeats, longest)
    else:
        layers()


if __name__ == "__main__":
    main()
