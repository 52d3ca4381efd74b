"""Second-order steps with a line search, each on several batches: progressive L-BFGS and DANCE on dense layers.

    pipeline: {name: progressive_lbfgs, tables: follow}
    pipeline: {name: dance, samples: 65536}

Tables are looked up once for each batch; dense layers then pass over the batch as often as the method needs. With
`follow`, tables learn from each new batch by their own optimizer; with `rest`, they do not change. The run's optimizer
of dense layers is not used.

B samples of a batch on this rank
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn

from recsmith.errors import UsageError, check_rules, too_small
from recsmith.files import Raw
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.log import tell_note
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.steps.protocol import StepOutcome, UnpipelinedStep
from recsmith.training.systems.second_order.cached_tables import CachedBatch, CachedTables, dense_parameters
from recsmith.training.systems.second_order.dance import DanceSettings, NewtonOutcome, newton
from recsmith.training.systems.second_order.flat import AskedToEnd, DampedLoss
from recsmith.training.systems.second_order.progressive_lbfgs import LbfgsOutcome, LbfgsSettings, ProgressiveLbfgs
from recsmith.units import counted, format_time


@dataclass
class Passed:
    """How often steps passed over their samples; a pass is a forward and a backward pass.

    timed: number of steps that seconds and batch_passes cover: those after the first, if there are any, because the
    first also sets up much that later ones use. batch_passes: passes over single batches on this rank. smallest,
    largest: samples of all ranks in a step. halvings: of step lengths.
    """

    steps: int = 0
    passes: float = 0.0
    timed: int = 0
    batch_passes: float = 0.0
    seconds: float = 0.0
    smallest: int = 0
    largest: int = 0
    halvings: int = 0

    @property
    def mean(self) -> float:
        """Mean number of passes of a step."""
        return self.passes / max(self.steps, 1)


TOLD_S = 10.0  # seconds between two lines within a stage of DANCE
PASSED = WeakKeyDictionary[nn.Module, Passed]()  # keyed by the sharded model that a step trains


class SecondOrderStep(UnpipelinedStep):
    """The common part of both steps: batches are looked up once, and tables learn from them or rest.

    tables: follow or rest. most: most batches of a rank that are kept at once. passed: counts of the steps so far.
    """

    method_settings: type[LbfgsSettings | DanceSettings]

    @classmethod
    def check_settings(cls, *, samples: int = 1, most: int = 1, **others: Any) -> None:
        """Raise UsageError for a setting that is out of its range; needs no job."""
        check_rules(too_small("pipeline.samples", samples, 1), too_small("pipeline.most", most, 1))
        names = {each.name for each in fields(cls.method_settings)}
        try:
            cls.method_settings(**{name: value for name, value in others.items() if name in names})
        except UsageError as error:
            raise UsageError(f"pipeline.{error}") from None

    def __init__(self, job: ShardedJob, *, samples: int, tables: Literal["follow", "rest"], most: int) -> None:
        self.check_settings(samples=samples, most=most)
        self.job, self.follow, self.most = job, tables == "follow", most
        self.parts: dict[str, Any] = dict(job.optimizer.optimizers)
        dense = self.parts.pop("dense")
        self.tables = CachedTables(job.model.module)  # type: ignore[arg-type]
        self.layers = self.tables.layers(dense_parameters(self.tables.task, dense.params))
        self.passed = PASSED.setdefault(job.model, Passed())

    def taken(self, batches: Iterator[TrainingBatch], wanted: int) -> tuple[list[CachedBatch], StepOutcome]:
        """Look up at least `wanted` samples of all ranks as whole batches, or all that are left; (batches, outcome).

        Raises:
            StopIteration: no batch is left.
        """
        cached, outcomes, count = list[CachedBatch](), list[Any](), 0
        while len(cached) < self.most and (not cached or count < wanted):
            try:
                batch = next(batches).to(self.job.device)
            except StopIteration:
                if not cached:
                    raise
                break
            outcomes.append(self._looked_up(batch, cached))
            count += batch.place.asked * dist.get_world_size()
        losses, logits, labels, places = zip(*outcomes, strict=True)
        loss = torch.stack(losses).mean()
        return cached, StepOutcome(loss, torch.cat(logits), torch.cat(labels), places)

    def count(self, cached: list[CachedBatch], samples: int, begun: float) -> tuple[Raw, str]:
        """Count a finished step; returns facts and words on it, without its loss.

        cached: batches of this rank. samples: of all ranks. begun: time.perf_counter() before the step.
        """
        passed, seconds = self.passed, time.perf_counter() - begun
        passes = self.layers.visited / max(sum(each.samples for each in cached), 1)
        self.layers.visited = 0.0
        if passed.steps == 1:
            passed.timed, passed.seconds, passed.batch_passes = 0, 0.0, 0.0
        passed.steps, passed.passes = passed.steps + 1, passed.passes + passes
        passed.timed, passed.seconds = passed.timed + 1, passed.seconds + seconds
        passed.batch_passes += passes * len(cached)
        passed.smallest, passed.largest = min(passed.smallest or samples, samples), max(passed.largest, samples)
        words = f"{samples:,} samples passed over {passes:,.1f} times in {format_time(seconds)}"
        return {"samples": samples, "passes": passes, "seconds": seconds}, words

    def _looked_up(self, batch: TrainingBatch, cached: list[CachedBatch]) -> Any:
        """Look up a batch, train the tables on it under `follow`, and return the model's outcome."""
        with self.tables.recorded(batch, cached), torch.set_grad_enabled(self.follow):
            loss, outcome = self.job.model(batch)
        if self.follow:
            self.job.optimizer.zero_grad()
            loss.backward()  # optimizers of tables are fused into the backward pass
            for part in self.parts.values():
                part.step()
            self.job.optimizer.zero_grad(set_to_none=True)
        return outcome


def samples_of(cached: list[CachedBatch]) -> int:
    """Number of samples of all ranks in cached batches."""
    count = torch.tensor(sum(each.samples for each in cached), dtype=torch.int64, device=cached[0].batch.labels.device)
    dist.all_reduce(count)
    return int(count)


class ProgressiveLbfgsStep(SecondOrderStep):
    """L-BFGS on a sample that grows when its noise would change the direction too much.

    Settings in addition to LbfgsSettings.

    samples: of all ranks in the first step. tables: follow trains them by their own optimizer, rest does not change
    them. most: most batches of a rank in a step.

    Raises:
        UsageError: a setting is out of its range.
    """

    method_settings = LbfgsSettings
    described_by = (LbfgsSettings,)

    def __init__(
        self, job: ShardedJob, *, samples: int = 512, tables: Literal["follow", "rest"] = "follow", most: int = 64,
        memory: int = 20, theta: float = 0.9, growth: float = 4.0, tested: int = 512,
    ) -> None:  # fmt: skip
        self.method = ProgressiveLbfgs(LbfgsSettings(memory=memory, theta=theta, growth=growth, tested=tested))
        super().__init__(job, samples=samples, tables=tables, most=most)
        self.wanted, self.told = samples, 0  # told: samples of the last step that was reported
        self.outcome: LbfgsOutcome | None = None

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train one step on as many of the next batches as the method wants."""
        begun = time.perf_counter()
        cached, seen = self.taken(batches, self.wanted)
        tested, count = list[CachedBatch](), 0
        for each in cached:
            if count < self.method.settings.tested:
                tested, count = [*tested, each], count + each.batch.place.asked
        samples = samples_of(cached)
        try:
            self.outcome = made = self.method.step(DampedLoss(self.layers, cached), samples, tested)
        except AskedToEnd:
            words = f"asked to end within a step of {samples:,} samples: dense layers stay as they were before it"
            return replace(seen, said=({"samples": samples, "ended": True}, words), ended=True)
        self.wanted = made.wanted
        self.passed.halvings += made.halvings
        facts, words = self.count(cached, samples, begun)
        if samples < 2 * self.told and made.rate:
            return seen
        self.told = samples
        halved = f", its length halved {counted(made.halvings, 'time')}" if made.halvings else ""
        length = halved if made.rate else ", no length lowers the loss"
        facts |= {"loss": made.loss, "rate": made.rate, "halvings": made.halvings}
        return replace(seen, said=(facts, f"{words}, log loss {made.loss:.4f} before it{length}"))


class DanceStep(SecondOrderStep):
    """A stage of DANCE: Newton steps on the samples that it has kept and on about as many new ones.

    Settings in addition to DanceSettings. Tables are not trained, since the kept vectors would become outdated.

    samples: of all ranks in the first stage. most: most batches of a rank that are kept; then the oldest are dropped.

    Raises:
        UsageError: a setting is out of its range.
    """

    method_settings = DanceSettings
    described_by = (DanceSettings,)

    def __init__(
        self, job: ShardedJob, *, samples: int = 4096, most: int = 256, gamma: float = 0.5, c: float = 0.1,
        beta: float = 0.1, inner: int = 30, newton: int = 10, growth: float = 2.0,
    ) -> None:  # fmt: skip
        self.settings = DanceSettings(gamma=gamma, c=c, beta=beta, inner=inner, newton=newton, growth=growth)
        super().__init__(job, samples=samples, tables="rest", most=most)
        self.first = samples
        self.kept: list[CachedBatch] = []
        self.outcome: NewtonOutcome | None = None

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train a stage; if a rank is asked to end within it, the Newton steps taken so far are kept."""
        begun = time.perf_counter()
        before = samples_of(self.kept) if self.kept else 0
        share = self.settings.growth - 1 if len(self.kept) < self.most else 0.5  # half as many, once `most` are kept
        new, seen = self.taken(batches, round(before * share) or self.first)
        self.kept = [*self.kept, *new][-self.most :]
        samples = samples_of(self.kept)
        known = self.settings.known_to(samples)
        damped = DampedLoss(self.layers, self.kept, self.settings.c * known, self.layers.weights())
        try:
            least = (2 * self.settings.c) ** 0.5 * known
            self.outcome = made = newton(
                damped, least=least, settings=self.settings, stepped=self._teller(samples, begun)
            )  # fmt: skip
        except AskedToEnd:
            words = f"asked to end before the first Newton step on {samples:,} samples: layers stay as they were"
            return replace(seen, said=({"samples": samples, "newton": 0, "ended": True}, words), ended=True)
        facts, words = self.count(self.kept, samples, begun)
        loss = made.loss - damped.distance(self.layers.weights())
        facts |= {"before": made.before, "loss": loss, "newton": made.steps, "norm": made.norm, "ended": made.ended}
        asked = "asked to end within this stage, whose Newton steps so far stay: " if made.ended else ""
        newtons = f"log loss {made.before:.4f} before and {loss:.4f} after {counted(made.steps, 'Newton step')}"
        return replace(seen, said=(facts, f"{asked}{words}, {newtons}"), ended=made.ended)

    def _teller(self, samples: int, begun: float) -> Callable[[int, float], None]:
        """A function that reports the progress of a long stage, at most every TOLD_S. begun: start of the stage."""
        told = begun

        def tell(steps: int, loss: float) -> None:
            nonlocal told
            now = time.perf_counter()
            if now - told >= TOLD_S:
                told = now
                tell_note(
                    f"stage of {samples:,} samples: {steps} of at most {self.settings.newton} Newton steps in "
                    f"{format_time(now - begun)}, damped log loss {loss:.4f}"
                )

        return tell
