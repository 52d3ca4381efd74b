"""Dense layers of a DLRM on cached inputs, and a frozen model under drift: what second_order.py trains."""

import json
import math
import statistics
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from optimizer_jobs import CLICKS, FEATURES, SAMPLES, Clicks, beside, mean_of
from precision import one_rank

from recsmith.errors import RecSmithError
from recsmith.prediction.speeds import layers_s
from recsmith.training import DenseOptimizer, Run, RunData, RunModel, RunOptimizers, SparseOptimizer, load_model
from recsmith.training.job.sharded import table_of
from recsmith.training.optimizers.building import table_class
from recsmith.training.optimizers.dense import dense_optimizer
from recsmith.training.run import run_to_raw
from recsmith.training.systems.second_order.cached_tables import CachedBatch, CachedTables
from recsmith.training.systems.second_order.dance import DanceSettings, newton, stages
from recsmith.training.systems.second_order.flat import DampedLoss, FlatLayers
from recsmith.training.systems.second_order.progressive_lbfgs import ProgressiveLbfgs
from recsmith.training.systems.second_order.settings import RefitSettings

STEPS, PASSES, LOOKS = 100, 4.0, 25  # batches of a pass, passes of each method, and steps between two looks
RATES = {
    "adam": (3e-4, 1e-3, 3e-3), "adagrad": (1e-3, 3e-3, 1e-2), "sgd": (0.1, 0.3, 1.0), "shampoo": (3e-4, 1e-3, 3e-3),
}  # fmt: skip
SHOWN = (1.0, 2.0, PASSES)  # passes after which the table has losses
NEAR = 5e-4  # how far above Adam's best loss counts as there
PERIOD, PERIODS, CYCLE, TRAINED = 50_000, (4, 5, 6), 8, 4
SIZES, SHOWN_DAMPINGS = (4096, PERIOD), (0.1, 0.01, 0.001, 0.0001)
Way = tuple[str, str]  # layers, method
Curve = list[tuple[float, float]]  # passes, loss on other clicks


def layers(quick: bool, output: Path) -> None:
    """Passes to Adam's loss, from layers drawn anew and from layers that are trained; tables rest."""
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    for seed in range(1 if quick else 5):
        missing = [each for each in _arms() if f"{each}/{seed}" not in found]
        if missing:
            task = _Dense(seed, quick=quick)
            for arm in missing:
                start, name, rate = arm.split(", ")
                found[f"{arm}/{seed}"] = task.curve(start, name, rate)
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(json.dumps(found, indent=1))
    for start in ("cold", "warm"):
        shown = " | ".join(f"loss after {passes:g}" for passes in SHOWN)
        print(f"| {start} | {shown} | beside Adam | passes to Adam's loss |")
        print("|---|---|---|---|---|---|")
        table = _table(found, start)
        adam = min((name for name in table if name.startswith("adam,")), key=lambda n: statistics.mean(table[n]["end"]))
        for name, row in table.items():
            less = [a - b for a, b in zip(row["end"], table[adam]["end"], strict=True)]
            passes = [
                _passes(curve, target) for curve, target in zip(row["curves"], _targets(table, adam), strict=True)
            ]
            reached = [each for each in passes if math.isfinite(each)]
            told = (
                f"{statistics.mean(reached):.2f}" if len(reached) == len(passes) else f"{len(reached)} of {len(passes)}"
            )
            losses = " | ".join(
                f"{statistics.mean(_after(curve, each) for curve in row['curves']):.5f}" for each in SHOWN
            )
            print(f"| {name} | {losses} | {_interval(less)} | {told} |")


def _arms() -> list[str]:
    made: list[str] = []
    for start in ("cold", "warm"):
        made += [f"{start}, {name}, {rate:g}" for name, rates in RATES.items() for rate in rates]
        made += [f"{start}, progressive L-BFGS, 0", f"{start}, DANCE, 0"]
    return made


def _table(found: dict[str, Any], start: str) -> dict[str, dict[str, list[Any]]]:
    """Curves of all seeds, of the best rate of each method."""
    rows: dict[str, dict[str, list[Any]]] = {}
    for key, curve in found.items():
        if key.startswith(f"{start}, "):
            name = key.removeprefix(f"{start}, ").rpartition("/")[0]
            row = rows.setdefault(name, {"curves": [], "end": []})
            row["curves"].append(curve)
            row["end"].append(_after(curve, PASSES))
    best: dict[str, str] = {}
    for name in rows:
        kind = name.partition(",")[0]
        if kind not in best or statistics.mean(rows[name]["end"]) < statistics.mean(rows[best[kind]]["end"]):
            best[kind] = name
    return {name: rows[name] for name in best.values()}


def _targets(table: dict[str, Any], adam: str) -> list[float]:
    return [end + NEAR for end in table[adam]["end"]]


def _after(curve: Curve, passes: float) -> float:
    """The loss where a method was last looked at by then."""
    return [loss for visited, loss in curve if visited <= passes][-1]


def _passes(curve: Curve, target: float) -> float:
    return next((passes for passes, loss in curve if loss <= target), math.inf)


def _interval(values: list[float]) -> str:
    """Mean of paired differences with an interval at 95 %."""
    if not any(values):
        return ""
    rows = {f"a/{i}": {"x": each} for i, each in enumerate(values)} | {f"b/{i}": {"x": 0.0} for i in range(len(values))}
    return beside(rows, "a", "b", "x")


class _Dense:
    """A DLRM whose tables are trained and rest, its layers as a vector, and its batches with what tables give."""

    def __init__(self, seed: int, *, quick: bool) -> None:
        clicks = Clicks(CLICKS, seed, 4 if quick else STEPS, quick=quick)
        self.task = clicks.model()
        self.cold = {name: each.detach().clone() for name, each in self.task.model.named_parameters()}
        tables = [each for name, each in self.task.named_parameters() if table_of(name)]
        dense = [each for name, each in self.task.named_parameters() if not table_of(name)]
        of_tables: Any = table_class("rowwise_adagrad")
        optimizers = [of_tables(tables, lr=0.05), torch.optim.Adam(dense, lr=3e-4)]
        for batch in clicks.train_on:
            for each in optimizers:
                each.zero_grad()
            self.task(batch)[0].backward()
            for each in optimizers:
                each.step()
        cached = CachedTables(self.task)
        named = {name: each for name, each in self.task.model.named_parameters() if not table_of(name)}
        self.layers = Recorded(named, cached.losses)
        self.starts = {"warm": self.layers.weights(), "cold": torch.cat([self.cold[n].reshape(-1) for n in named])}
        self.parts, self.others = (_looked_up(cached, each) for each in (clicks.train_on, clicks.test_on[:20]))
        self.samples = sum(each.samples for each in self.parts)

    def curve(self, start: str, name: str, rate: str) -> Curve:
        """(passes, loss on other clicks) along a method's way."""
        self.layers.visited, self.layers.seen = 0.0, []
        self.layers.put(self.starts[start])
        if name == "progressive L-BFGS":
            self._lbfgs()
        elif name == "DANCE":
            self._dance()
        else:
            self._descend(DenseOptimizer(name=name, learning_rate=float(rate)))
        seen = [(visited / self.samples, at) for visited, at in self.layers.seen]
        return [(passes, self.layers.loss(at, self.others)) for passes, at in seen if passes <= PASSES * 1.05]

    def _descend(self, optimizer: DenseOptimizer) -> None:
        made, count = dense_optimizer(list(self.layers.parameters.values()), optimizer), 0
        for number in range(math.ceil(PASSES)):
            order = torch.randperm(len(self.parts), generator=torch.Generator().manual_seed(number)).tolist()
            for part in order:
                weights = self.layers.weights()
                _, slope = self.layers.gradient(weights, [self.parts[part]])
                for name, each in self.layers._by_name(slope).items():
                    self.layers.parameters[name].grad = each.clone()
                made.step()
                count += 1
                if count % min(LOOKS, len(self.parts)) == 0:
                    self.layers.put(self.layers.weights())  # which is what is looked at

    def _lbfgs(self) -> None:
        method, wanted, at = ProgressiveLbfgs(), 512, 0
        sizes = self.parts[0].samples
        while self.layers.visited < PASSES * self.samples:
            count = min(math.ceil(wanted / sizes), len(self.parts))
            taken = [self.parts[(at + i) % len(self.parts)] for i in range(count)]
            at += count
            damped = DampedLoss(self.layers, taken)
            wanted = max(wanted, method.step(damped, count * sizes, taken[:1], self.samples).wanted)

    def _dance(self) -> None:
        """Stages until the passes are used; Hessians are those of 8,192 samples at most, as in a refit."""
        sizes = [each.samples for each in self.parts]
        settings = DanceSettings(gamma=0.75, c=0.1, beta=0.4, inner=10, newton=3)
        for wanted in stages(2048, self.samples, settings.growth):
            count = next(n for n in range(1, len(sizes) + 1) if sum(sizes[:n]) >= wanted)
            known = settings.known_to(sum(sizes[:count]))
            damped = DampedLoss(self.layers, self.parts[:count], settings.c * known, self.layers.weights())
            bent = self.parts[: min(count, 8192 // sizes[0])]
            newton(damped, least=(2 * settings.c) ** 0.5 * known, settings=settings, curvature=bent)
            if self.layers.visited > PASSES * self.samples:
                break


class Recorded(FlatLayers):
    """Layers that remember where they were put, and after how many samples."""

    seen: list[tuple[float, torch.Tensor]]

    def put(self, weights: torch.Tensor) -> None:
        """Remember them."""
        super().put(weights)
        if hasattr(self, "seen"):
            self.seen.append((self.visited, weights.clone()))


def _looked_up(cached: CachedTables, batches: Any) -> list[CachedBatch]:
    found: list[CachedBatch] = []
    for batch in batches:
        with cached.recorded(batch, found), torch.no_grad():
            cached.task(batch)
    return found


WAYS = (("last", "dance"), ("last", "progressive_lbfgs"))
DENSE_WAYS = (("dense", "dance"), ("dense", "progressive_lbfgs"))


def refitted(quick: bool, output: Path) -> None:
    """NE of the period after the one that the last layer of a frozen model is fitted to, under drift."""
    _refitted(output, WAYS, PERIODS[: 1 if quick else None], 1 if quick else 5, 2000 if quick else PERIOD)


def dense_refitted(quick: bool, output: Path) -> None:
    """The same of all dense layers, which takes far longer: of one period and two seeds."""
    _refitted(output, DENSE_WAYS, PERIODS[:1], 1 if quick else 2, 2000 if quick else PERIOD)


def _refitted(output: Path, ways: Sequence[Way], periods: Sequence[int], seeds: int, period: int) -> None:
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    for seed in range(seeds):
        missing = [each for each in periods if f"{each}/{seed}" not in found]
        if missing:
            with tempfile.TemporaryDirectory() as folder:
                drifting = Drifting(seed, Path(folder), period)
                for each in missing:
                    found[f"{each}/{seed}"] = drifting.row(each, ways)
                    output.parent.mkdir(parents=True, exist_ok=True)
                    output.write_text(json.dumps(found, indent=1))
    arms = [", ".join(way) for way in ways]
    print("| fitted to period | untouched | Platt | " + " | ".join(arms) + " |")
    print("|---" * (3 + len(arms)) + "|")
    for name in dict.fromkeys(key.partition("/")[0] for key in found):
        print(f"| {name} | " + " | ".join(f"{mean_of(found, name, arm):.4f}" for arm in ("old", "platt", *arms)) + " |")
    for arm in arms:
        rows = list(found.values())
        times, bounds = [each[f"{arm}, s"] for each in rows], [each[f"{arm}, bound"] or 0.0 for each in rows]
        better = sum(each[arm] < min(each["platt"], each["old"]) for each in rows)
        told = f", at most {max(bounds):.1e} above the least" if max(bounds) else ""
        print(
            f"{arm}: below Platt and untouched in {better} of {len(rows)}, beside Platt "
            f"{_interval([each[arm] - each['platt'] for each in rows])}; {statistics.mean(times):.1f} CPU s, at most "
            f"{max(times):.1f}{told}"
        )


def curve(quick: bool, output: Path) -> None:
    """NE of the period after the one that the last layer is fitted to, by damping, and of the one that is picked."""
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    for seed in range(1 if quick else 2):
        for samples in SIZES[: 1 if quick else None]:
            if f"{samples:,}/{seed}" in found:
                continue
            with tempfile.TemporaryDirectory() as folder:
                drifting = Drifting(seed, Path(folder), PERIOD // 5 if quick else PERIOD)
                found[f"{samples:,}/{seed}"] = drifting.by_damping(PERIODS[0], samples)
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(found, indent=1))
    arms = ["old", "platt", *(f"{each:g}" for each in SHOWN_DAMPINGS), "picked"]
    print("| samples | untouched | Platt | " + " | ".join(arms[2:]) + " | picked were |")
    print("|---" * (2 + len(arms)) + "|")
    for name in dict.fromkeys(key.partition("/")[0] for key in found):
        picked = ", ".join(str(each["damping"]) for key, each in found.items() if key.startswith(f"{name}/"))
        print(f"| {name} | " + " | ".join(f"{mean_of(found, name, arm):.4f}" for arm in arms) + f" | {picked} |")


def steps(quick: bool) -> None:
    """Passes of steps with default settings, and CPU seconds of a pass beside what layers_s predicts of one."""
    print("| layers | step | batches | passes | CPU s | of a pass, beside predicted |")
    print("|---|---|---|---|---|---|")
    for bottom, top in (((128, 64), (256, 128)), ((512, 256), (512, 256)))[: 1 if quick else None]:
        _Timed(RunModel(embedding_dim=16, bottom=bottom, top=top), quick=quick).print_steps(quick)


class _Timed:
    """Dense layers of a DLRM as a vector, and batches for them, whose steps are timed."""

    def __init__(self, model: RunModel, *, quick: bool) -> None:
        clicks = Clicks(CLICKS, 0, 4 if quick else 16, quick=True, model=model)
        task = clicks.model()
        cached = CachedTables(task)
        named = {name: each for name, each in task.model.named_parameters() if not table_of(name)}
        self.layers, self.wide = FlatLayers(named, cached.losses), "-".join(map(str, (*model.bottom, *model.top)))
        self.parts = _looked_up(cached, clicks.train_on)
        shapes = [tuple(each.shape) for each in named.values()]
        self.one_s = layers_s(shapes, SAMPLES, (len(FEATURES) + 1, model.embedding_dim))

    def print_steps(self, quick: bool) -> None:
        """A line for each step."""
        self.layers.loss(self.layers.weights(), self.parts)  # what the first call loads is not timed
        begin, method, wanted, at = self.layers.weights(), ProgressiveLbfgs(), SAMPLES, 0
        for number in range(2 if quick else 6):
            taken = [self.parts[(at + i) % len(self.parts)] for i in range(math.ceil(wanted / SAMPLES))]
            at += len(taken)
            with self._line(f"progressive_lbfgs {number + 1}", taken):
                wanted = method.step(DampedLoss(self.layers, taken), SAMPLES * len(taken), taken[:1]).wanted
        self.layers.put(begin)
        settings = DanceSettings(newton=2) if quick else DanceSettings()
        for number, count in enumerate((2,) if quick else (8, 16)):
            taken, known = self.parts[:count], settings.known_to(SAMPLES * count)
            damped = DampedLoss(self.layers, taken, settings.c * known, self.layers.weights())
            with self._line(f"dance {number + 1}", taken):
                newton(damped, least=(2 * settings.c) ** 0.5 * known, settings=settings)

    @contextmanager
    def _line(self, step: str, taken: Sequence[CachedBatch]) -> Generator[None]:
        self.layers.visited, begun = 0.0, time.process_time()
        yield
        spent, passes = time.process_time() - begun, self.layers.visited / (SAMPLES * len(taken))
        beside = spent / (passes * len(taken) * self.one_s)
        print(f"| {self.wide} | {step} | {len(taken)} | {passes:.1f} | {spent:.2f} | {beside:.2f} |", flush=True)


class Drifting:
    """A DLRM trained on the first periods of a truth that rotates, and then frozen."""

    def __init__(self, seed: int, folder: Path, period: int) -> None:
        self.period, self.output, drift = period, folder / "out", {"kind": "rotating", "samples": CYCLE * period}
        self.words: dict[str, Any] = {**CLICKS, "seed": 200 + seed, "drift": drift,
                                      "features": [{**each, "num_embeddings": 30} for each in FEATURES]}  # fmt: skip
        optimizers = RunOptimizers(sparse=SparseOptimizer(learning_rate=0.05), dense=DenseOptimizer(learning_rate=2e-3))
        run = Run(
            data=RunData(train=self.clicks(0, TRAINED), batch_size=512, shuffle=False), output=str(self.output),
            seed=seed,
            model=RunModel(embedding_dim=8, bottom=(32,), top=(64, 32)), optimizers=optimizers, checkpoint=None,
        )  # fmt: skip
        from recsmith.training.rank import train_on_rank

        with one_rank():
            train_on_rank(run_to_raw(run))

    def clicks(self, first: int, periods: int = 1) -> dict[str, Any]:
        """The samples of some periods."""
        return {**self.words, "first_sample": first * self.period, "num_samples": periods * self.period}

    def row(self, period: int, ways: Sequence[Way]) -> dict[str, Any]:
        """NE of each way to go on from a period, on the next."""
        from recsmith.training.systems.second_order.refit import refit

        made: dict[str, Any] = {"platt": self.platt(period)}
        for which, method in ways:
            settings = RefitSettings(layers=which, method=method)  # type: ignore[arg-type]
            begun = time.process_time()  # of the samples it is fitted to and of those that both models are scored on
            found, scores = refit(
                self.output, self.clicks(period), settings=settings, force=True, test=self.clicks(period + 1)
            )
            spent = time.process_time() - begun
            made |= {f"{which}, {method}": scores["new"].ne, f"{which}, {method}, s": spent,
                     f"{which}, {method}, bound": found.bound, "old": scores["old"].ne}  # fmt: skip
        return made

    def by_damping(self, period: int, samples: int) -> dict[str, Any]:
        """NE on the next period, by what holds the last layer that is fitted to so many samples of one."""
        from recsmith.training.systems.second_order.refit import refit

        made: dict[str, Any] = {"platt": self.platt(period, samples), "damping": None}
        for damping in (*SHOWN_DAMPINGS, None):
            name = "picked" if damping is None else f"{damping:g}"
            settings = RefitSettings(damping=damping, samples=samples)
            try:
                found, scores = refit(
                    self.output, self.clicks(period), settings=settings, force=True, test=self.clicks(period + 1)
                )
            except RecSmithError:  # nothing is written: the old layers stay
                made[name] = made.get("old", math.nan)
                continue
            made |= {"old": scores["old"].ne, name: scores["new"].ne}
            if damping is None:
                made["damping"] = found.damping
        return made

    def platt(self, period: int, samples: int | None = None) -> float:
        """NE on the next period of logits times a slope and plus a bias, both fitted to a period by Newton steps."""
        from recsmith.scoring.predictions import exact_scores

        (logits, labels), (later, truth) = (self._logits(each) for each in (period, period + 1))
        logits, labels = logits[:samples], labels[:samples]
        line = torch.tensor([1.0, 0.0], dtype=torch.float64)
        inputs = torch.stack([logits, torch.ones_like(logits)], 1)
        for _ in range(50):
            chances = torch.sigmoid(inputs @ line)
            bent = (inputs * (chances * (1 - chances))[:, None]).T @ inputs
            line -= torch.linalg.solve(bent + 1e-9 * torch.eye(2), inputs.T @ (chances - labels))
        return exact_scores((later * line[0] + line[1])[:, None], truth[:, None], ("label",)).ne or 0.0

    def _logits(self, period: int) -> tuple[torch.Tensor, torch.Tensor]:
        from recsmith.training.batches import as_tensors
        from recsmith.training.sources import open_data

        model, logits, labels = load_model(self.output / "model"), list[torch.Tensor](), list[torch.Tensor]()
        dataset = open_data(self.clicks(period), "data")
        with torch.no_grad():
            for batch in dataset.batches(rank=0, world_size=1, batch_size=4096, seed=0, shuffle=False):
                _, (_, found, given, _) = model.task(as_tensors(batch, model.features))
                logits.append(found[:, 0].double())
                labels.append(given[:, 0].double())
        return torch.cat(logits), torch.cat(labels)
