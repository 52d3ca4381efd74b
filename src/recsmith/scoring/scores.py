"""Scores of predictions, as files, logs and reports hold them, and their means over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.files import encode


@noun
class AtScores:
    """How good the first k of each group are, means of groups: `hit_rate` and `recall` as shares, and `ndcg`."""

    hit_rate: float
    recall: float
    ndcg: float


@noun
class RankingScores:
    """How good samples are ranked beside those of their group (ranking.py).

    groups: with a positive and a negative sample. auc: the mean of theirs, weighted by samples; null without any. at:
    by k, scores of the first k.
    """

    groups: int
    auc: float | None
    at: dict[str, AtScores]


@noun
class LabelScores:
    """How good predictions of a label are, in nats and shares; a score is null where it has no meaning.

    ne: cross entropy over that of always predicting the mean label; null where all labels are equal, as auc is then.
    calibration: mean prediction over mean label; null where no label is above 0. ranking: beside samples of the same
    group, where the run names groups. samples: that have the label, where some may lack it. rmse: root of the mean
    squared error, where the model says the label itself; the scores of chances are null then. pr_auc: average
    precision, where the run asks for it; null without positives.
    """

    logloss: float | None
    ne: float | None
    calibration: float | None
    auc: float | None
    ranking: RankingScores | None = None
    samples: int | None = None
    rmse: float | None = None
    pr_auc: float | None = None


@noun
class Scores:
    """How good predictions of `samples` are: scores as LabelScores has them, of several labels their means.

    corrupt: samples beside them that were left out. labels: scores of each label by its name, where there are several;
    a mean is null where a label has no such score, but of those that the model says itself, whose score is rmse.
    ranking: of data with one label, where the run names groups.
    """

    samples: int
    logloss: float | None
    ne: float | None
    calibration: float | None
    auc: float | None
    corrupt: int = 0
    labels: dict[str, LabelScores] | None = None
    ranking: RankingScores | None = None
    rmse: float | None = None
    pr_auc: float | None = None


def scores_of(samples: int, labels: Mapping[str, LabelScores]) -> Scores:
    """Scores of samples by those of each of their labels."""

    def mean(name: str, *, of_numbers: bool = False) -> float | None:
        of_kind = [each for each in labels.values() if (each.rmse is not None) == of_numbers]
        values = [getattr(each, name) for each in of_kind]
        return None if not values or None in values else statistics.fmean(values)

    return Scores(
        samples=samples, logloss=mean("logloss"), ne=mean("ne"), calibration=mean("calibration"), auc=mean("auc"),
        labels=dict(labels) if len(labels) > 1 else None,
        ranking=next(iter(labels.values())).ranking if len(labels) == 1 else None,
        rmse=mean("rmse", of_numbers=True), pr_auc=mean("pr_auc"),
    )  # fmt: skip


def by_label(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Scores as a log has them, flat: those of a label under `label/score`, as TensorBoard names them."""
    labels: Mapping[str, Mapping[str, Any]] = scores.get("labels") or {}
    flat = {f"{label}/{name}": value for label, found in labels.items() for name, value in _flat(found).items()}
    return {**{name: value for name, value in _flat(scores).items() if name != "labels"}, **flat}


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Scores with those of rankings beside the others: `grouped_auc`, `ndcg@10`."""
    ranking: Mapping[str, Any] = scores.get("ranking") or {}
    flat = {name: value for name, value in scores.items() if name != "ranking"}
    if ranking:
        flat |= {"groups": ranking["groups"], "grouped_auc": ranking["auc"]}
    return flat | {f"{name}@{k}": value for k, found in ranking.get("at", {}).items() for name, value in found.items()}


SHOWN = {"logloss": ("log loss", ".5f"), "ne": ("NE", ".4f"), "auc": ("AUC", ".5f"),
         "calibration": ("calibration", ".4f"), "rmse": ("RMSE", ".5f"), "pr_auc": ("PR-AUC", ".5f")}  # fmt: skip
CHANCES = ("logloss", "ne", "auc", "calibration")  # scores of labels of 0 to 1
WITHOUT = {
    "logloss": "no sample, or no finite prediction", "ne": "all labels are equal", "auc": "all labels are equal",
    "calibration": "no label is above 0", "rmse": "the model says no label itself, or none that is finite",
    "pr_auc": "no label is above 0.5, or none was asked for",
}  # fmt: skip


def shown_scores(scores: Mapping[str, Any], names: Sequence[str] = CHANCES) -> str:
    """Scores as a log has them in a line; what has no meaning says why. Those of each of several labels follow."""
    numbers = scores.get("rmse") is not None
    told = (*(name for name in names if not numbers or scores[name] is not None), *(["rmse"] if numbers else []))
    known = [f"{SHOWN[name][0]} {scores[name]:{SHOWN[name][1]}}" for name in told if scores[name] is not None]
    lacking: dict[str, list[str]] = {}
    for name in told:
        if scores[name] is None:
            because = WITHOUT["logloss" if scores["logloss"] is None else name]
            lacking.setdefault(because, []).append(SHOWN[name][0])
    known += [f"PR-AUC {scores['pr_auc']:.5f}"] if scores.get("pr_auc") is not None else []
    known += shown_ranking(scores.get("ranking"))
    without = [f"no {' or '.join(each)} ({because})" for because, each in lacking.items()]
    labels: Mapping[str, Mapping[str, Any]] = scores.get("labels") or {}
    each = "; ".join(f"{label}: {shown_scores(found, names)}" for label, found in labels.items())
    return ", ".join([*known, *without]) + (f" ({each})" if each else "")


def shown_ranking(ranking: Mapping[str, Any] | None) -> list[str]:
    """Scores of rankings as a log has them."""
    if not ranking:
        return []
    if ranking["auc"] is None:
        return ["no ranking (no group has both a positive and a negative)"]
    at: list[str] = []
    for k, found in ranking["at"].items():
        recall = [f"recall@{k} {found['recall']:.4f}"] if found["recall"] != found["hit_rate"] else []
        at += [f"HR@{k} {found['hit_rate']:.4f}", *recall, f"NDCG@{k} {found['ndcg']:.4f}"]
    return [f"grouped AUC {ranking['auc']:.5f}", *at, f"of {ranking['groups']:,} groups"]


def scores_text(scores: Scores) -> str:
    """Scores in a line."""
    left = f"; {scores.corrupt:,} corrupt ones were left out" if scores.corrupt else ""
    return f"{shown_scores(encode(scores))}, of {scores.samples:,} samples{left}"


def known_score(scores: Mapping[str, Any], name: str, where: str) -> float:
    """A score that means something; UsageError where it does not, since nothing can be compared by it.

    scores: as a log has them. where: they were found, for errors.
    """
    value = scores.get(name)
    if value is None:
        raise UsageError(f"{where} has no {SHOWN[name][0]} ({WITHOUT[name]}); give data with samples of both classes")
    return float(value)


STUDENT = (  # at 95 %, 1 to 14 degrees of freedom
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
)  # fmt: skip


def mean_within(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half of its 95 % interval by Student's t); None for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    t = STUDENT[min(len(values) - 2, len(STUDENT) - 1)]
    return mean, t * statistics.stdev(values) / len(values) ** 0.5
