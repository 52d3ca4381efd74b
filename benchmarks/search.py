"""What an architecture search finds, what it costs, and how far its prices are from plans.

    python benchmarks/search.py movielens ML_LATEST_SMALL -o measured [--seeds 5]
    python benchmarks/search.py coefficients ML_LATEST_SMALL -o measured
    python benchmarks/search.py planted -o measured [--epochs 8] [--widths 4,8,16] [--seeds 3] [--greedy]
    python benchmarks/search.py prices [--quick]

movielens: AUC of what is found beside uniform widths and the power rule. coefficients: expected prices, and CPU seconds
beside a training. planted: widths that are planted, and a greedy search. prices: their sums beside plans.

Networks and samples are trained in this process, on one thread, in plain PyTorch with the step of the product
(training/systems/search/step.py); losses of a job are the same to 1e-6
(tests/training/systems/stored/test_compressed_jobs.py). Every
training is a line of measured/*.jsonl as soon as it is done, and not done again.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from recsmith import sample_workload
from recsmith.clusters import load_cluster
from recsmith.embeddings.workloads import compress_to
from recsmith.errors import UsageError
from recsmith.reports.compressions import curve_picture
from recsmith.scoring.predictions import exact_auc
from recsmith.scoring.scores import mean_within
from recsmith.searching import Picks, SearchSpace, SpaceOptions
from recsmith.searching.prices import Priced, replanned, with_prices
from recsmith.searching.samples import frontier, picked, rules_setting, settings_of
from recsmith.searching.space import make_space
from recsmith.training import DenseOptimizer, Run, RunData, RunModel, RunOptimizers, SparseOptimizer, load_run
from recsmith.training.batches import as_tensors, training_batches
from recsmith.training.job.models import build_task
from recsmith.training.job.sharded import draw_weights
from recsmith.training.optimizers.building import sparse_arguments, table_class
from recsmith.training.results.points import CompressionPoint
from recsmith.training.sources import open_data, open_source
from recsmith.training.stores.device import DeviceRows
from recsmith.training.systems.search.network import scores_of
from recsmith.training.systems.search.searching import NetworkSearch, candidates, expected, front, prepare
from recsmith.training.systems.search.step import SearchStep
from recsmith.training.systems.search.tables import pick
from recsmith.training.tables.plain import features_of, initial_weights_of

warnings.filterwarnings("ignore", module="torch")

WIDTHS = (4, 8, 16, 32)
COEFFICIENTS = (0.0, 0.01, 0.1, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["movielens", "planted", "coefficients", "prices"])
    parser.add_argument("data", nargs="?", default="ml-latest-small")
    parser.add_argument("-o", "--output", type=Path, default=Path("measured"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=15, help="Of planted tables that need 4 columns, and 16.")
    parser.add_argument("--samples", type=int, default=150_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--widths", default="4,16", help="Choices of planted tables.")
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--coefficient", type=float, default=0.1)
    parser.add_argument("--greedy", action="store_true")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if not dist.is_initialized():
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    asked.output.mkdir(parents=True, exist_ok=True)
    {"movielens": movielens, "planted": planted, "coefficients": coefficients, "prices": prices}[asked.part](asked)


# --- training in this process ---------------------------------------------------------------------------------------


class Several:
    """Some optimizers as one."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = parts

    def zero_grad(self) -> None:
        """Of all."""
        for part in self.parts:
            part.zero_grad()

    def step(self) -> None:
        """Of all."""
        for part in self.parts:
            part.step()


class Called:
    """A task as a sharded model is called."""

    def __init__(self, task: Any) -> None:
        self.module = task

    def __call__(self, batch: Any) -> Any:
        """Loss and outcome."""
        return self.module(batch)


def trained(run: Run) -> Any:
    """The task of a run, trained; by the step of a search where the run asks for that."""
    source = open_source(run)
    task = build_task(run.model, source.schema, run.seed, tables_on="cpu")
    draw_weights(DeviceRows(task), initial_weights_of(task), run.seed)
    torch.manual_seed(run.seed)
    parameters, sparse = dict(task.named_parameters()), run.optimizers.sparse
    tables = [each for name, each in parameters.items() if "embedding_bags" in name]
    dense = [each for name, each in parameters.items() if "embedding_bags" not in name]
    optimizer = Several([
        table_class(sparse.name)(tables, **sparse_arguments(sparse)),
        torch.optim.Adam(dense, lr=run.optimizers.dense.learning_rate),
    ])  # fmt: skip
    job: Any = SimpleNamespace(model=Called(task), optimizer=optimizer, device=torch.device("cpu"))
    name, settings = run.step_named
    step: Callable[[Any], object] = SearchStep(job, **settings) if name == "search" else plain_step(job)
    batches = training_batches(source, run.data.batch_sizes(1), features_of(task), rank=0, ranks=1)
    while True:
        try:
            step(batches)
        except StopIteration:
            return task.eval()


def plain_step(job: Any) -> Callable[[Any], object]:
    def step(batches: Any) -> None:
        loss, _ = job.model(next(batches))
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()

    return step


def outcomes(task: Any, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, labels) of all samples of some data."""
    words: Any = {"rank": 0, "world_size": 1, "batch_size": 16_384, "seed": 0, "shuffle": False, "drop_last": False}
    with open_data(data, "data.test").batches(**words) as batches, torch.no_grad():
        found = [task(as_tensors(batch, features_of(task)))[1] for batch in batches]
    return torch.cat([each[1][:, 0] for each in found]), torch.cat([each[2][:, 0] for each in found])


def auc(task: Any, data: Any) -> float:
    found = exact_auc(*outcomes(task, data))
    assert found is not None, "all labels are equal"
    return found


def kept(file: Path, key: dict[str, Any], made: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The row of a key, made where it is not there yet."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    found = next((row for row in rows if all(row.get(name) == value for name, value in key.items())), None)
    if found is None:
        found = {**key, **made()}
        with file.open("a") as opened:
            opened.write(json.dumps(found) + "\n")
        print(json.dumps(found)[:300], flush=True)
    return found


# --- MovieLens --------------------------------------------------------------------------------------------------------


def movie_run(asked: Any, columns: int, seed: int = 0) -> Run:
    path = str(asked.data)
    settings = (
        f"data.train.path={path}", f"data.test.path={path}", "data.test.split=valid", f"seed={seed}",
        f"model.embedding_dim={columns}",
    )  # fmt: skip
    return load_run(Path(__file__).with_name("train_movielens.yaml"), settings)


def movielens(asked: Any) -> None:
    """Widths that are chosen on the validation split, and AUC on the test split of what was chosen."""
    file = asked.output / "movielens.jsonl"

    def trained_once(name: str, columns: int, settings: tuple[str, ...], seed: int) -> dict[str, Any]:
        run = load_run(movie_run(asked, columns, seed), settings)

        def made() -> dict[str, Any]:
            task = trained(run)
            data = run.data.test
            return {"valid": auc(task, data), "test": auc(task, {**data, "split": "test"})}

        return kept(file, {"name": name, "columns": columns, "settings": list(settings), "seed": seed}, made)

    def told(name: str, columns: int, settings: tuple[str, ...]) -> list[dict[str, Any]]:
        return [trained_once(name, columns, settings, seed) for seed in range(asked.seeds)]

    uniform = {width: told(f"uniform {width}", width, ()) for width in WIDTHS}
    best = max(WIDTHS, key=lambda width: statistics.fmean(row["valid"] for row in uniform[width]))
    prepared = prepare(movie_run(asked, best), NetworkSearch(price="bytes"), str(asked.output / "network"))
    workload, space = prepared.priced.workload, prepared.space
    numbers = sum(table.num_embeddings * table.embedding_dim for table in workload.tables)
    tables = replace(space, layers=(), fixed=0.0)
    samples = found_samples(prepared, tables, file)
    rows = [("uniform", f"{width}", numbers * width // best, uniform[width]) for width in WIDTHS]
    for picks in samples:
        size = round(tables.price(picks) / 4)
        settings = settings_of(tables, picks, {})
        rows.append(("search", shown(tables, picks), size, told("search", best, settings)))
        try:
            rule = compress_to(workload, numbers / size, "mixed_dimension", above_rows=0)
        except UsageError:
            continue
        rows.append(("power rule", "", rule.parameters_after, told("power", best, (rules_setting(rule.rules),))))
    show_movielens(rows, uniform[best], numbers, best)
    picture = asked.output / "movielens.svg"
    picture.write_text(curve_picture([drawn(*row) for row in rows], across="numbers of the tables", shown=thousands))
    print(f"\nwrote {picture}")


def drawn(kind: str, _: str, size: int, members: list[dict[str, Any]]) -> CompressionPoint:
    """A variant as a point of the picture: AUC on the test split against the numbers of its tables."""
    mean, within = mean_within([row["test"] for row in members])
    return CompressionPoint(
        method=kind, factor=1.0, weight_bytes=size, map_bytes=0, auc=mean, auc_within=within, seeds=len(members)
    )


def thousands(numbers: int) -> str:
    return f"{numbers / 1000:.0f} k"


def found_samples(prepared: Any, space: SearchSpace, file: Path) -> list[Picks]:
    """Samples of at most 40 % of the price, those that the one network likes best, as `recsmith search` tells them."""

    def made() -> dict[str, Any]:
        run = replace(prepared.network, pipeline={**prepared.network.pipeline, "ceiling": 0.4, "coefficient": 0.1})
        task = trained(run)
        tried = candidates(space, scores_of(task, space), 0.4, run.seed)
        aucs = list[float]()
        for picks in tried:
            pick(task, picks)
            aucs.append(auc(task, run.data.test))
        return {"samples": [list(picks) for picks, _ in front(space, tried, aucs)]}

    row = kept(file, {"name": "network", "columns": prepared.run.model.embedding_dim}, made)
    return [tuple(picks) for picks in row["samples"]]


def shown(space: SearchSpace, picks: Picks) -> str:
    return ", ".join(f"{name} {choice}" for name, choice in picked(space, picks).items())


def show_movielens(rows: Any, best_rows: Any, numbers: int, best: int) -> None:
    chosen = max(
        (row for row in rows if row[0] == "search"), key=lambda row: statistics.fmean(r["valid"] for r in row[3])
    )
    print(f"\nbest uniform width on the validation split: {best}")
    print("| | widths | parameters | of the best uniform | AUC, validation | AUC, test "
          "| minus the best uniform, test |\n|---|---|---|---|---|---|---|")  # fmt: skip
    seen = set()
    for kind, widths, size, members in rows:
        if (kind, size) in seen:
            continue
        seen.add((kind, size))
        valid, test = (mean_within([row[split] for row in members]) for split in ("valid", "test"))
        apart = mean_within([a["test"] - b["test"] for a, b in zip(members, best_rows, strict=True)])
        mark = " (chosen)" if members is chosen[3] else ""
        share = f"{size / numbers:.0%}"
        beside = f"{apart[0]:+.4f} ± {apart[1] or 0:.4f}"
        print(f"| {kind}{mark} | {widths} | {size:,} | {share} | {text(valid)} | {text(test)} | {beside} |")


def text(found: tuple[float, float | None]) -> str:
    return f"{found[0]:.4f}" + ("" if found[1] is None else f" ± {found[1]:.4f}")


# --- coefficients, and what a search costs ----------------------------------------------------------------------------


def coefficients(asked: Any) -> None:
    """Expected prices at several coefficients, and CPU seconds of search and training in turn, on MovieLens."""
    file = asked.output / "coefficients.jsonl"
    run = movie_run(asked, 16)
    for coefficient in COEFFICIENTS:
        for seed in range(min(asked.seeds, 3)):
            kept(
                file,
                {"coefficient": coefficient, "seed": seed},
                lambda c=coefficient, s=seed: searched(asked, run, c, s),
            )
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    print("\n| coefficient | expected price | price of the likeliest | CPU seconds, of a training |\n|---|---|---|---|")
    for coefficient in COEFFICIENTS:
        mine = [row for row in rows if row["coefficient"] == coefficient]
        told = (statistics.fmean(row[name] for row in mine) for name in ("expected", "likeliest", "cost"))
        print("| {:g} | {:.1%} | {:.1%} | {:.2f} |".format(coefficient, *told))


def searched(asked: Any, run: Run, coefficient: float, seed: int) -> dict[str, Any]:
    wanted = NetworkSearch(price="bytes", coefficient=coefficient)
    prepared = prepare(replace(run, seed=seed), wanted, str(asked.output / "network"))
    begun = time.process_time()
    trained(replace(run, seed=seed))
    middle = time.process_time()
    task = trained(prepared.network)
    ended = time.process_time()
    scores, space = scores_of(task, prepared.space), prepared.space
    likeliest: Picks = tuple(scores.argmax(axis=1).tolist())
    return {
        "expected": expected(space, scores) / space.whole, "likeliest": space.price(likeliest) / space.whole,
        "cost": (ended - middle) / (middle - begun),
    }  # fmt: skip


# --- planted widths ---------------------------------------------------------------------------------------------------


def planted_run(samples: int, epochs: int, seed: int, needed: dict[str, int]) -> Run:
    def data(count: int, first: int) -> dict[str, Any]:
        words = {"format": "search_data:Planted", "needed": needed, "rows": 40, "seed": seed}
        return {**words, "samples": count, "first": first}

    return Run(
        data=RunData(train=data(samples, 0), test=data(20_000, 10**7), batch_size=512, epochs=epochs),
        model=RunModel(name="search_data:pairs", embedding_dim=16), output="planted", seed=seed, checkpoint=None,
        optimizers=RunOptimizers(
            sparse=SparseOptimizer(name="adagrad", learning_rate=0.1), dense=DenseOptimizer(learning_rate=0.001)
        ),
    )  # fmt: skip


def planted(asked: Any) -> None:
    """Tables of which half need 4 columns and half 16, under the price of what they need: which widths are found."""
    if asked.quick:
        asked.pairs, asked.samples, asked.epochs, asked.seeds, asked.greedy = 2, 5_000, 4, 1, True
    file = asked.output / "planted.jsonl"
    words = {name: getattr(asked, name) for name in ("pairs", "samples", "epochs", "coefficient")}
    widths = [int(width) for width in asked.widths.split(",")]
    rows = [
        kept(file, {**words, "seed": seed, "widths": widths}, lambda s=seed: found_widths(asked, s, tuple(widths)))
        for seed in range(asked.first, asked.first + asked.seeds)
    ]
    print("\n| tables | choices | epochs | seed | found | need 4: took | need 16: took | price | likeliest, any price |"
          " greedy: on other samples, on its own |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        took = " | ".join(", ".join(map(str, counts)) for counts in row["by_need"].values())
        least = f"{row['greedy']:.1%}, {row['greedy_own']:.1%}" if "greedy" in row else ""
        begin = f"{4 * row['pairs']} | {', '.join(map(str, widths))} | {row['epochs']} | {row['seed']}"
        print(f"| {begin} | {row['found']:.0%} | {took} | {row['price']:.1%} | {row['likeliest']:.0%} | {least} |")


def found_widths(asked: Any, seed: int, widths: tuple[int, ...]) -> dict[str, Any]:
    needed = {"4": asked.pairs, "16": asked.pairs}
    truth = [int(width) for width, count in needed.items() for _ in range(2 * count)]
    under = sum(truth) / (16 * len(truth))
    run = planted_run(asked.samples, asked.epochs, seed, needed)
    wanted = NetworkSearch(
        price="bytes", under=under, coefficient=asked.coefficient, options=SpaceOptions(widths=widths)
    )
    prepared = prepare(run, wanted, str(asked.output / "network"))
    task, space = trained(prepared.network), prepared.space
    scores = scores_of(task, space)
    picks = frontier(space, scores, under)[0]
    loss, other = network_losses(task, run.data.test)
    greedily = {}
    if asked.greedy:
        path = greedy(space, loss)
        greedily = {"greedy": cheapest(space, path, other, picks), "greedy_own": cheapest(space, path, loss, picks)}

    def columns(made: Picks) -> list[int]:
        return [part.options[k].width for part, k in zip(space.parts, made, strict=True)]

    got = columns(picks)
    likeliest = columns(tuple(scores.argmax(axis=1).tolist()))
    return {
        "found": statistics.fmean(a == b for a, b in zip(got, truth, strict=True)),
        "likeliest": statistics.fmean(a == b for a, b in zip(likeliest, truth, strict=True)),
        "by_need": {str(need): [[g for g, t in zip(got, truth, strict=True) if t == need].count(w) for w in widths]
                    for need in sorted(set(truth))},
        "price": space.price(picks) / space.whole, "loss": other(picks), **greedily,
    }  # fmt: skip


def network_losses(task: Any, data: Any) -> list[Callable[[Picks], float]]:
    """Log loss of samples as parts of a network, on each of two batches of the validation data."""
    words: Any = {"rank": 0, "world_size": 1, "batch_size": 8_192, "seed": 0, "shuffle": False, "drop_last": False}
    with open_data(data, "data.test").batches(**words) as batches:
        read = [as_tensors(batch, features_of(task)) for batch in islice(batches, 2)]

    def loss(batch: Any, picks: Picks) -> float:
        pick(task, picks)
        with torch.no_grad():
            return float(task(batch)[0])

    return [partial(loss, batch) for batch in read]


def greedy(space: SearchSpace, loss: Callable[[Picks], float]) -> list[Picks]:
    """From the run as it is: of all single changes to the next narrower width, the one that loses least for its saving.

    All samples on the way to the cheapest.
    """
    picks, now, path = space.largest, loss(space.largest), [space.largest]
    while any(picks):
        tried = list[tuple[float, float, Picks]]()
        for n, pick_ in enumerate(picks):
            if pick_:
                changed = (*picks[:n], pick_ - 1, *picks[n + 1 :])
                told = loss(changed)
                tried.append(((told - now) / (space.price(picks) - space.price(changed)), told, changed))
        _, now, picks = min(tried)
        path.append(picks)
    return path


def cheapest(space: SearchSpace, path: list[Picks], loss: Callable[[Picks], float], other: Picks) -> float:
    """The least price, as a share, of the samples on a path that lose no more than another sample."""
    worst = loss(other)
    return min((space.price(picks) for picks in path if loss(picks) <= worst), default=space.whole) / space.whole


# --- prices -----------------------------------------------------------------------------------------------------------


def prices(asked: Any) -> None:
    """20 random samples: the sum of prices beside the step that is planned anew."""
    print("| tables | cluster | sum of prices / step of a new plan: least, median, most | within 25 % |")
    print("|---|---|---|---|")
    for count, cluster in (
        ((20, "h100:8"),) if asked.quick else ((60, "h100:8"), (60, "a100-80:8x2"), (200, "h100:8x2"))
    ):
        workload = sample_workload(tables=count, seed=0)
        sizes = {"bottom": (512, 256), "top": (512, 256)}
        columns = max(table.embedding_dim for table in workload.tables)
        reads = {"bottom": 13, "top": columns + count * (count + 1) // 2}
        priced = Priced(workload, load_cluster(cluster), sizes, reads, {"bottom": columns, "top": 1})
        options = SpaceOptions(layers=(0.25, 0.5))
        space = with_prices(make_space(workload, options, sizes, 13), priced, "step", planner="ldm")
        rng, ratios = np.random.default_rng(0), list[float]()
        for _ in range(20):
            picks: Picks = tuple(int(rng.integers(len(part.options))) for part in space.parts)
            ratios.append(space.price(picks) / replanned(space, picks, priced, planner="ldm").price)
        inside = sum(0.75 <= ratio <= 1.25 for ratio in ratios)
        told = f"{min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f}"
        print(f"| {count} | {cluster} | {told} | {inside} of 20 |")


if __name__ == "__main__":
    main()
