"""Ends training when scores on test data stop improving, or are good enough; keeps the best model.

An evaluation gives every rank the same scores, so all ranks decide alike without communication.
"""

import math
from typing import Any

from recsmith.errors import UsageError, check_rules, outside
from recsmith.files import Raw, encode
from recsmith.scoring.scores import by_label
from recsmith.training.job.finishing import export_model
from recsmith.training.job.job import TrainingJob
from recsmith.training.run import Run
from recsmith.training.watchers.protocol import Seen, SeenScores, Watcher, Wish

BEST = "best"  # folder of the best model, inside the run's folder
LOWER = ("ne", "logloss", "rmse")  # scores of which lower is better
HIGHER = ("auc", "pr_auc", "grouped_auc", "hit_rate", "recall", "ndcg")


class EarlyStopping(Watcher):
    """Ends training when scores on data.test stop improving, and keeps the best model in the folder `best` of the run.

    score: ne, logloss, auc, pr_auc, rmse; for rankings grouped_auc, hit_rate@10, recall@10 or ndcg@10; for one of
    several labels `label/auc`. patience: evaluations in a row without improvement after which training ends; none: no
    limit. least: smallest improvement that counts. target: training ends when the score is at least this good.
    keep_best: whether the model of the best evaluation is written.
    """

    def __init__(
        self, *, score: str = "ne", patience: int | None = 3, least: float = 0.0, target: float | None = None,
        keep_best: bool = True,
    ) -> None:  # fmt: skip
        self.check_settings(score=score, patience=patience, least=least, target=target, keep_best=keep_best)
        self.score, self.patience, self.least, self.target, self.keep_best = score, patience, least, target, keep_best
        self.sign = -1.0 if _kind(score) in LOWER else 1.0
        self.best: float | None = None
        self.best_step, self.since = 0, 0
        self._asked = False  # whether an end was requested, which comes some steps later

    @classmethod
    def check_settings(cls, **settings: Any) -> None:
        """UsageError for an unknown score, or a patience or improvement that is too small."""
        score, patience, least = settings.get("score", "ne"), settings.get("patience", 3), settings.get("least", 0.0)
        target = settings.get("target")
        check_rules(
            None if _kind(score) in (*LOWER, *HIGHER) else
            f"early_stopping: score is '{score}'; known: {', '.join((*LOWER, *HIGHER))}; write those of rankings with "
            "a place (ndcg@10), and those of a label behind its name (clicked/auc)",
            outside("early_stopping: patience", patience, 1),
            outside("early_stopping: least", least, 0),
            None if target is None or math.isfinite(target) else
            f"early_stopping: target is {target}; it must be a finite number",
            None if patience is not None or target is not None or settings.get("keep_best", True) else
            "early_stopping has no patience, no target and keeps no model, so it does nothing; give it one of them",
        )  # fmt: skip

    @classmethod
    def check_run(cls, run: Run) -> None:
        """UsageError if a run does not evaluate during training."""
        if run.data.test is None or run.metrics.evaluate_every is None:
            lacks = "data.test" if run.data.test is None else "metrics.evaluate_every"
            raise UsageError(
                f"watcher early_stopping looks at scores on test data while a run trains, and the run has no {lacks}; "
                f"give it {lacks}, or leave the watcher out"
            )

    def look(self, seen: Seen) -> Wish | None:
        """Nothing: only evaluations are checked."""
        return None

    def look_at_scores(self, seen: SeenScores) -> Wish | None:
        """Check an evaluation, on every rank."""
        value = self._value(seen)
        gained = 0.0 if value is None or self.best is None else self.sign * (value - self.best)
        if value is not None and (self.best is None or gained > self.least):
            self.best, self.best_step, self.since = value, seen.step, 0
            if self.keep_best:
                _keep(seen)
        else:
            self.since += 1
        because = None if self._asked else self._enough(value)
        self._asked |= because is not None
        return None if because is None else Wish("stop", because)

    def _enough(self, value: float | None) -> str | None:
        """Why training should end; None if it should not."""
        if self.target is not None and value is not None and self.sign * (value - self.target) >= 0:
            return f"{self.score} on test data is {value:.5g}, as good as {self.target:g}"
        if self.patience is not None and self.since >= self.patience:
            best = "there was none" if self.best is None else f"the best was {self.best:.5g} of step {self.best_step:,}"
            return f"{self.score} on test data got no better in {self.since} evaluations; {best}"
        return None

    def leave(self) -> None:
        """Request the end anew if it is still due: a roll-back drops the wishes of steps that are trained again."""
        self._asked = False

    def to_raw(self) -> Raw:
        """The best score so far, its step, and the evaluations since."""
        return {"best": self.best, "best_step": self.best_step, "since": self.since}

    def from_raw(self, raw: Raw) -> None:
        """Continue from these."""
        self.best, self.best_step, self.since = raw["best"], raw["best_step"], raw["since"]

    def _value(self, seen: SeenScores) -> float | None:
        """The score; None if it is undefined, such as the AUC of one class."""
        flat = by_label(encode(seen.scores))
        if self.score not in flat:
            known = sorted(name for name in flat if _kind(name) in (*LOWER, *HIGHER))
            raise UsageError(
                f"watcher early_stopping looks at '{self.score}', and evaluations say {', '.join(known)}; name one of "
                "them, or give the run metrics.pr_auc, metrics.at or metrics.group"
            )
        return flat[self.score]


def _kind(score: str) -> str:
    """A score's name without its label and its rank cutoff."""
    return score.rpartition("/")[2].partition("@")[0]


def _keep(seen: SeenScores) -> None:
    job: TrainingJob = seen.job
    folder = job.output / BEST
    export_model(job, folder, encode(seen.scores))
    job.log.say({"note": f"the best model so far, of step {seen.step:,}, is in '{folder}'"})
