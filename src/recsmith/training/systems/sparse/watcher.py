"""A sparse copy that is refreshed while the whole model keeps learning from a stream.

    watchers: [{name: sparse_copy, share: 0.8, periods: 4}]     # made anew from the whole model each 4 periods

Ye et al. 2020 (arXiv 2010.08655): which weights matter changes with the data, and a sparse model cannot recover weights
that it dropped. So the whole model is always trained, and the copy is made anew from it every r periods, or when an
alarm asks for it. In between, the copy keeps its zeros, its other dense weights are tuned on the latest period, and it
uses the current tables of the whole model.
"""

from pathlib import Path

import torch

from recsmith._types import noun
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import CorruptFile, UsageError, check_rules, too_small
from recsmith.files import Raw, check_is_file, encode
from recsmith.training.job.card import CARD
from recsmith.training.job.export import WEIGHTS, export, export_changed
from recsmith.training.job.job import TrainingJob
from recsmith.training.results.copies import batches_like, scored
from recsmith.training.results.serving import load_model
from recsmith.training.systems.periods.source import PeriodSource
from recsmith.training.systems.sparse.settings import SparsitySettings
from recsmith.training.systems.sparse.sparsify import SPARSE, DenseCopy, Masks, looked_up
from recsmith.training.watchers.protocol import Seen, SeenPeriod, Watcher


@noun
class SparseRefresh:
    """When a sparse copy is made anew from the whole model.

    periods: after this many periods; none: only when an alarm asks for it (`watch: {actions: {ne: refresh}}`). first:
    period before which there is no copy. folder: of the copy, inside the run's folder.
    """

    periods: int | None = 4
    first: int = 1
    folder: str = "sparse"

    def __post_init__(self) -> None:
        plain = self.folder.replace("-", "").replace("_", "").isalnum() and self.folder not in ("model", "checkpoints")
        check_rules(
            None
            if self.periods is None or self.periods > 0
            else f"watchers (sparse_copy): periods is {self.periods}; a copy is made anew each 1 or more of them: give "
            "1 or more, or null, which leaves it to alarms",
            too_small("watchers (sparse_copy): first", self.first, 1),
            None
            if plain
            else f"watchers (sparse_copy): folder is '{self.folder}'; give a plain name that the run does not use",
        )

    def why(self, since: int | None, *, asked: bool) -> str | None:
        """Why the copy is made anew now, or None. since: periods since it was made; None if there is no copy."""
        if since is None:
            return "for there was none"
        if asked:
            return "for an alarm asked for a refresh"
        return f"after {since} periods" if self.periods is not None and since >= self.periods else None


class SparseCopies(Watcher):
    """Makes or tunes a copy before each period. Settings are those of SparsitySettings and of SparseRefresh."""

    described_by = (SparsitySettings, SparseRefresh)
    every = 1 << 30  # it acts at periods, not at steps

    def __init__(
        self, *, share: float = 0.8, periods: int | None = 4, first: int = 1, masks: int = 100, steps: int = 100,
        batch_size: int = 512, learning_rate: float = 1e-3, per_layer: bool = False, folder: str = SPARSE,
    ) -> None:  # fmt: skip
        self.refresh_at = SparseRefresh(periods=periods, first=first, folder=folder)
        self.settings = SparsitySettings(
            share=share, masks=masks, steps=steps, batch_size=batch_size, learning_rate=learning_rate,
            per_layer=per_layer,
        )  # fmt: skip
        self.made_at: int | None = None  # period before which the copy was made from the whole model
        self.asked = False

    def look(self, seen: Seen) -> None:
        """Do nothing at steps."""

    def refresh(self) -> None:
        """Request a new copy before the next period; the training loop calls this if an alarm asks for a refresh."""
        self.asked = True

    def look_at_period(self, seen: SeenPeriod) -> None:
        """Make the copy anew, or tune it on the period before, and score it on the next period."""
        if seen.ahead != 1 or seen.period < self.refresh_at.first:
            return
        since = None if self.made_at is None else seen.period - self.made_at
        why = self.refresh_at.why(since, asked=self.asked)
        job, whole = seen.job, seen.job.output / f"{self.refresh_at.folder}.full"
        export(job.sharded, job.run, job.source.schema, whole, {"step": job.progress.step})
        described = from_rank_0(lambda: self._made(job, whole, seen.period, why))
        known = {"period": seen.period, "because": why, "full_logloss": seen.scores.logloss}
        job.log.write(
            "sparse_copy", {"step": job.progress.step, "folder": self.refresh_at.folder, **known, **described}
        )
        done = f"made anew, {why}" if why else "tuned on the period before"
        losses = f"{described['logloss']:.5f} on period {seen.period}, {seen.scores.logloss:.5f} of the whole model"
        job.log.say({"note": f"sparse copy, {done}: log loss {losses}"})
        if why is not None:
            self.made_at, self.asked = seen.period, False

    def _made(self, job: TrainingJob, whole: Path, period: int, why: str | None) -> Raw:
        """Write the copy on rank 0, and return its scores on the next period."""
        source, target = job.source, job.output / self.refresh_at.folder
        assert isinstance(source, PeriodSource)
        predictor = load_model(whole)
        card = predictor.card
        samples, size = self.settings.samples, self.settings.batch_size
        batches = batches_like(card, source.at(period - 1), "data.train", samples=samples, size=size)
        copy = DenseCopy(predictor, looked_up(predictor, batches, "data.train"))
        before = copy.loss()
        masks = copy.masked(self.settings) if why is not None else _taken_over(copy, target)
        copy.tune(masks, self.settings)
        made = copy.result(masks, self.settings, before)
        scores = scored(predictor, list(batches_like(card, source.at(period), "data.train")))
        export_changed(whole, target, copy.changed(), {"sparse": encode(made), "test": encode(scores)})
        return {"zeros": made.zeros / made.weights, **encode(scores)}

    def to_raw(self) -> Raw | None:
        """When the copy was made; its weights are in its folder."""
        return {"made_at": self.made_at, "asked": self.asked}

    def from_raw(self, raw: Raw) -> None:
        """Continue with the copy in the folder."""
        self.made_at, self.asked = raw["made_at"], raw["asked"]


def _taken_over(copy: DenseCopy, folder: Path) -> Masks:
    """Load the dense weights of the exported copy, and return a mask of those that are not zero.

    Raises:
        UsageError: the copy is no longer there.
        CorruptFile: its file is damaged, or of another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / CARD).exists():
        raise UsageError(f"the sparse copy in '{folder}' is gone, which the job would tune; leave it where it is")
    check_is_file(folder / WEIGHTS)
    try:
        found = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CorruptFile(f"'{folder / WEIGHTS}' is no sound safetensors file ({error}); remove the copy") from None
    lacking = next((name for name in copy.parameters if f"model.{name}" not in found), None)
    odd = lacking or next((n for n, each in copy.parameters.items() if found[f"model.{n}"].shape != each.shape), None)
    if odd is not None:
        raise CorruptFile(
            f"'{folder / WEIGHTS}' is of another model: '{odd}' is missing or of another shape; remove it"
        )
    with torch.no_grad():
        for name, each in copy.parameters.items():
            each.copy_(found[f"model.{name}"])
    return {name: found[f"model.{name}"] != 0 for name in copy.weights}
