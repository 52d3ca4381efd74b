"""Scores of predictions in the form of files, logs and reports, and their means over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.files import encode


@noun
class AtScores:
    """Scores of the first k samples of each group, as means over groups: `hit_rate`, `recall` (shares) and `ndcg`."""

    hit_rate: float
    recall: float
    ndcg: float


@noun
class RankingScores:
    """How well samples are ranked within their groups (ranking.py).

    groups: number of groups with a positive and a negative sample. auc: mean AUC of these groups, weighted by samples;
    null if there are no such groups. at: by k, scores of the first k samples.
    """

    groups: int
    auc: float | None
    at: dict[str, AtScores]


@noun
class LabelScores:
    """How good predictions of a label are, in nats and shares; a score is null if it is undefined.

    ne: cross entropy / cross entropy of always predicting the mean label; null if all labels are equal, as is auc.
    calibration: mean prediction / mean label; null if no label is above 0. ranking: scores within groups, if the run
    names groups. samples: number of samples that have the label, if some lack it. rmse: root mean squared error, if the
    model predicts the label's value itself; scores of probabilities are null then. pr_auc: average precision, if the
    run asks for it; null without positives.
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
    """How good the predictions of `samples` samples are: the scores of LabelScores; for several labels, their means.

    corrupt: number of further samples that were skipped. labels: scores of each label by name, if there are several.
    The mean of rmse is over labels whose value is predicted, and all other means are over the remaining labels; a mean
    is null if one of its labels has no such score. ranking: scores within groups, for data with one label, if the run
    names groups.
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
    """The scores of samples, from the scores of each of their labels."""

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
    """Scores as a flat dict for a log; the scores of each label are named `label/score`, as in TensorBoard."""
    labels: Mapping[str, Mapping[str, Any]] = scores.get("labels") or {}
    flat = {f"{label}/{name}": value for label, found in labels.items() for name, value in _flat(found).items()}
    return {**{name: value for name, value in _flat(scores).items() if name != "labels"}, **flat}


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Scores as a flat dict, with names such as `grouped_auc` and `ndcg@10` for scores of rankings."""
    ranking: Mapping[str, Any] = scores.get("ranking") or {}
    flat = {name: value for name, value in scores.items() if name != "ranking"}
    if ranking:
        flat |= {"groups": ranking["groups"], "grouped_auc": ranking["auc"]}
    return flat | {f"{name}@{k}": value for k, found in ranking.get("at", {}).items() for name, value in found.items()}


SHOWN = {"logloss": ("log loss", ".5f"), "ne": ("NE", ".4f"), "auc": ("AUC", ".5f"),
         "calibration": ("calibration", ".4f"), "rmse": ("RMSE", ".5f"), "pr_auc": ("PR-AUC", ".5f")}  # fmt: skip
CHANCES = ("logloss", "ne", "auc", "calibration")  # scores of labels that are probabilities
WITHOUT = {
    "logloss": "no sample, or no finite prediction", "ne": "all labels are equal", "auc": "all labels are equal",
    "calibration": "no label is above 0", "rmse": "the model says no label itself, or none that is finite",
    "pr_auc": "no label is above 0.5, or none was asked for",
}  # fmt: skip


def shown_scores(scores: Mapping[str, Any], names: Sequence[str] = CHANCES) -> str:
    """A log's scores in one line, with reasons for undefined scores; scores of several labels follow one by one."""
    numbers = scores.get("rmse") is not None
    chosen = (*(name for name in names if not numbers or scores[name] is not None), *(["rmse"] if numbers else []))
    known = [f"{SHOWN[name][0]} {scores[name]:{SHOWN[name][1]}}" for name in chosen if scores[name] is not None]
    lacking: dict[str, list[str]] = {}
    for name in chosen:
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
    """Texts of a log's ranking scores; empty if there are none."""
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
    """Scores in one line of text."""
    left = f"; {scores.corrupt:,} corrupt ones were left out" if scores.corrupt else ""
    return f"{shown_scores(encode(scores))}, of {scores.samples:,} samples{left}"


def known_score(scores: Mapping[str, Any], name: str, where: str) -> float:
    """A score by name; UsageError if it is undefined, since nothing can be compared by it.

    scores: the scores of a log. where: their source, for errors.
    """
    value = scores.get(name)
    if value is None:
        raise UsageError(f"{where} has no {SHOWN[name][0]} ({WITHOUT[name]}); give data with samples of both classes")
    return float(value)


STUDENT = (  # quantiles of Student's t for two-sided 95 % intervals, for 1 to 14 degrees of freedom
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
)  # fmt: skip


def mean_within(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half width of its 95 % interval by Student's t, or None for a single value)."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    t = STUDENT[min(len(values) - 2, len(STUDENT) - 1)]
    return mean, t * statistics.stdev(values) / len(values) ** 0.5
