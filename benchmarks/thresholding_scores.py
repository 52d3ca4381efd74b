"""Scores of what `recsmith bench train` or thresholding.py have trained, seed by seed beside the first variant."""

import json
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from recsmith.files import encode
from recsmith.scoring.scores import mean_within
from recsmith.training.job.card import read_card
from recsmith.training.results.variants import TrainBench
from recsmith.training.run import load_run
from recsmith.training.systems.thresholds.settings import LEVEL, RUNG, WINDOW


def show_scores(variants: Sequence[str], seeds: Sequence[int], folder: Path, run: Path) -> None:
    """AUC and normalised entropy of models that are trained, their differences from the first paired by seed.

    A model that was trained with some columns of pooled embeddings is scored a second time with all of them.
    """
    batches: list[Any] = []
    found: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for name, seed in [(name, seed) for name in variants for seed in seeds]:
        trained = folder / f"{name}-{seed}"
        if not (trained / "measured.json").exists():
            continue
        events = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
        found.setdefault((name, ""), {})[seed] = next(event for event in events if event["event"] == "test")
        if read_card(trained / "model").columns is None:
            continue
        file = trained / "all-columns.json"
        if not file.exists():
            batches = batches or test_batches(run)
            file.write_text(json.dumps(scored(trained / "model", batches, all_columns=True)))
        found.setdefault((name, ", served with all columns"), {})[seed] = json.loads(file.read_text())
    print("| what crosses | seeds | AUC | difference, points | NE | difference | calibration |")
    print("|---|---|---|---|---|---|---|")
    first = next(iter(found.values()))
    for (name, served), trained in found.items():
        both = [(one, first[seed]) for seed, one in trained.items() if seed in first]
        cells = []
        for score, scale, digits in (("auc", 100, 3), ("ne", 1, 4)):
            mean, within = mean_within([scale * (one[score] - other[score]) for one, other in both])
            cells.append(f"{statistics.fmean(one[score] for one, _ in both):.5f}")
            cells.append("" if trained is first else f"{mean:+.{digits}f} ± {within or math.nan:.{digits}f}")
        calibration = statistics.fmean(one["calibration"] for one, _ in both)
        print(f"| {name}{served} | {len(both)} | {' | '.join(cells)} | {calibration:.2f} |", flush=True)


def show_progress(variants: Sequence[str], seeds: Sequence[int], folder: Path) -> None:
    """AUC of the samples of a training as they come, each scored before it is learned from, beside the first's."""
    print("| what crosses | seeds | AUC of the first half, points beside all | of the second half |")
    print("|---|---|---|---|")
    done: dict[str, dict[int, list[float]]] = {}
    for name, seed in [(name, seed) for name in variants for seed in seeds]:
        trained = folder / f"{name}-{seed}"
        if (trained / "measured.json").exists():
            events = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
            done.setdefault(name, {})[seed] = [event["auc"] for event in events if event["event"] == "train"]
    first = next(iter(done.values()))
    for name, trained in list(done.items())[1:]:
        cells = []
        for half in (0, 1):
            apart = []
            for seed, lines in trained.items():
                middle = (len(lines) + 1) // 2
                parts = [each[middle:] if half else each[:middle] for each in (lines, first[seed])]
                apart.append(100 * (statistics.fmean(parts[0]) - statistics.fmean(parts[1])))
            mean, within = mean_within(apart)
            cells.append(f"{mean:+.3f} ± {within or math.nan:.3f}")
        print(f"| {name} | {len(trained)} | {' | '.join(cells)} |", flush=True)


def show_warm_up(bench: TrainBench, folder: Path, ends: Sequence[int] = (50, 150, 300)) -> None:
    """AUC of stretches of a training whose log has a line a step, and of the test, in points beside the first's.

    Beside them is the share of the gradients that a mean step sent, by the losses that a warm-up goes by.
    """
    bounds = [0, *ends, 10**9]
    names = [f"steps {low + 1} to {high}" for low, high in pairwise(bounds[:-1])] + [f"from {ends[-1] + 1} on", "test"]
    print(f"| what crosses | {' | '.join(names)} | sent of all | all cross until |\n|---|{'---|' * (len(names) + 2)}")
    found: dict[str, list[list[float]]] = {}
    for name, settings in bench.variants.items():
        shares: list[float] = []
        whole: list[int] = []
        for seed in bench.seeds:
            events = [json.loads(line) for line in (folder / f"{name}-{seed}" / "log.jsonl").read_text().splitlines()]
            steps = [each for each in events if each["event"] == "train"]
            scores = [
                statistics.fmean(each["auc"] for each in steps if low < each["step"] <= high)
                for low, high in pairwise(bounds)
            ]
            test = next(each["auc"] for each in events if each["event"] == "test")
            found.setdefault(name, []).append([*scores, test])
            comms = load_run(bench.run, settings=settings).comms
            sent = shares_sent([each["logloss"] for each in steps], comms if isinstance(comms, dict) else {"dense": 1})
            shares.append(statistics.fmean(sent))
            whole.append(sum(each == 1 for each in sent))
        pairs = list(zip(found[name], next(iter(found.values())), strict=True))
        cells: list[str] = []
        for part in range(len(names)):
            mean, within = mean_within([100 * (one[part] - other[part]) for one, other in pairs])
            plain = f"{statistics.fmean(other[part] for _, other in pairs):.4f}"
            cells.append(plain if len(found) == 1 else f"{mean:+.2f} ± {math.nan if within is None else within:.2f}")
        until = "the end" if min(whole) == len(steps) else f"step {min(whole)} to {max(whole)}" if any(whole) else ""
        print(f"| {name} | {' | '.join(cells)} | {statistics.fmean(shares):.1%} | {until} |", flush=True)


def shares_sent(losses: Sequence[float], comms: dict[str, Any]) -> list[float]:
    """The share of the gradients that each step sends, by the losses of all ranks."""
    target, warm = comms["dense"], comms.get("warm_up")
    share, before, sent = 1.0 if warm else target, math.inf, list[float]()
    for first in range(0, len(losses), WINDOW):
        window = losses[first : first + WINDOW]
        sent += [share] * len(window)
        loss = statistics.fmean(window)
        if loss > before * (1 - LEVEL):
            share = max(target, share / RUNG)
        before = loss
    return sent


def test_batches(run: Path) -> list[Any]:
    """The samples of a run's data.test."""
    from recsmith.training.sources import open_data

    dataset = open_data(load_run(str(run)).data.test, "data.test")
    with dataset.batches(rank=0, world_size=1, batch_size=4096, seed=0, shuffle=False) as batches:
        return list(batches)


def scored(model: Path, batches: list[Any], all_columns: bool) -> dict[str, float]:
    """Scores of an exported model, as it is served, or with all columns of its pooled embeddings."""
    from recsmith.scoring.predictions import ScoredLabels, Window
    from recsmith.training.results.serving import load_model

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    predictor = load_model(model)
    window = Window(torch.device("cpu"), ScoredLabels(predictor.schema.labels))
    for module in predictor.task.modules() if all_columns else ():
        module._forward_hooks.clear()
    for batch in batches:
        served = torch.from_numpy(predictor.predict(batch)).double()
        window.add(served.logit(), torch.from_numpy(batch.labels), [batch])
    return encode(window.exact_scores())
