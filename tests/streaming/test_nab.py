"""NAB: our scorer returns what is published; the ensemble keeps its scores; rules of the score on small series."""

from pathlib import Path

import pytest

from recsmith.errors import UsageError
from recsmith.streaming import NabSeries, detector_of, load_nab, nab_score
from recsmith.streaming.nab import read_rows


@pytest.fixture(scope="module")
def nab(data: Path) -> Path:
    if not (data / "nab").is_dir():
        pytest.skip("the series of NAB are absent")
    return data / "nab"


def test_published_scores_get_the_published_score(nab: Path) -> None:
    corpus, scores = load_nab(nab), {}
    for name in corpus:
        group, file = name.split("/")
        rows = read_rows(nab / "results/windowedGaussian" / group / f"windowedGaussian_{file}")
        scores[name] = [float(row["anomaly_score"]) for row in rows]
    assert sum(map(len, scores.values())) == 365_558
    assert nab_score(corpus, scores).score == pytest.approx(39.65, abs=1e-2)
    published = {"reward_low_FP_rate": 20.87, "reward_low_FN_rate": 47.41}  # of NAB's README
    for profile, score in published.items():
        assert nab_score(corpus, scores, profile=profile).score == pytest.approx(score, abs=0.05)


def test_the_ensemble_keeps_its_scores(nab: Path) -> None:
    corpus = load_nab(nab)
    scores = {}
    for name, series in corpus.items():
        detector = detector_of("ensemble")
        scores[name] = [detector.score(value) for value in series.values]
    assert nab_score(corpus, scores).score >= 50
    halves = [{name: corpus[name] for name in sorted(corpus)[start::2]} for start in (0, 1)]
    for mine, other in (halves, halves[::-1]):
        threshold = nab_score(other, scores).threshold
        assert nab_score(mine, scores, threshold=threshold).score >= 42


CORPUS = {"one": NabSeries(values=(0.0,) * 100, windows=((40, 59),)), "none": NabSeries(values=(0.0,) * 50, windows=())}


def scores_at(*points: int) -> dict[str, list[float]]:
    return {"one": [float(point in points) for point in range(100)], "none": [0.0] * 50}


def test_early_alarms_are_worth_more_and_false_ones_cost() -> None:
    def score(*points: int) -> float:
        return nab_score(CORPUS, scores_at(*points), threshold=0.5).score

    assert score() == 0
    assert score(40) == pytest.approx(100)
    assert score(40, 41, 45) == pytest.approx(100)  # a window counts once
    assert 100 > score(45) > score(55) > score(59) > 0
    assert score(20, 40) == pytest.approx(100 - 11 / 2)  # over a miss and a hit, half a false alarm's weight
    assert score(40, 60) > score(40, 99) > score(40) - 11
    assert score(3) == score()  # on probation
    assert nab_score(CORPUS, scores_at(), threshold=None).score == 0


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'one' has 100 points and 0 scores"):
        nab_score(CORPUS, {})
    with pytest.raises(UsageError, match="no profile is called 'strict'"):
        nab_score(CORPUS, scores_at(), profile="strict")
    with pytest.raises(UsageError, match="checkout of"):
        load_nab(tmp_path)
