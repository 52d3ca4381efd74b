"""Detectors: each keeps the contract; scores are those of their formulas; units of a series do not matter."""

import json
import math
import random
import re
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streaming.detectors.contract import DetectorContract

from recsmith.errors import UsageError
from recsmith.reports.watch import shape_text
from recsmith.streaming import AlarmingSeries, detector_of, find_alarms
from recsmith.streaming.alarm_shapes import shape_of
from recsmith.streaming.csv_series import NamedSeries
from recsmith.streaming.detectors.ewma import Ewma
from recsmith.streaming.detectors.mean_shift import MeanShift
from recsmith.streaming.detectors.median_mad import TO_DEVIATION, MedianMad
from recsmith.streaming.detectors.protocol import Detector
from recsmith.streaming.detectors.seasonal import SeasonalEsd, esd_threshold, find_period
from recsmith.streaming.detectors.tail import BINS, FALLS, HIGHEST, LOWEST, NEVER, PRIOR, DecayingTail


class TestEwma(DetectorContract):
    spec = "ewma"


class TestMedianMad(DetectorContract):
    spec = "median_mad"


class TestTail(DetectorContract):
    spec = "tail"


class TestEnsemble(DetectorContract):
    spec = "ensemble"


class TestSeasonal(DetectorContract):
    spec = "seasonal"


class TestAdwin(DetectorContract):
    spec = "adwin"

    @pytest.fixture(autouse=True)
    def river(self) -> None:
        pytest.importorskip("river")


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=80))
def test_median_and_mad_are_those_of_the_window(values: list[float]) -> None:
    detector = MedianMad(window=7, warm=3)
    for place, value in enumerate(values):
        window = sorted(values[max(0, place - 7) : place])
        if place >= 3 and len(window) % 2:  # of even windows the upper middle one is taken
            middle = statistics.median(window)
            mad = statistics.median([abs(each - middle) for each in window])
            if mad > 1e-3 * (1 + abs(middle)):
                assert detector.score(value) == pytest.approx(abs(value - middle) / (TO_DEVIATION * mad), rel=1e-9)
                continue
        detector.score(value)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=200), st.floats(2, 50))
def test_the_tail_is_the_weight_of_scores_as_high(scores: list[float], half_life: float) -> None:
    tail = DecayingTail(half_life)

    def bin_of(score: float) -> int:
        return min(max(int((math.log(score + 1e-9) - LOWEST) * BINS / (HIGHEST - LOWEST)), 0), BINS - 1)

    for place, score in enumerate(scores):
        found = tail.surprise(score)
        weights = [2.0 ** (-(place - each) / half_life) for each in range(place)]
        high = sum(w for w, past in zip(weights, scores[:place], strict=True) if bin_of(past) >= bin_of(score))
        if place:
            usual = PRIOR * math.exp(-FALLS * score) + NEVER
            expected = max(0.0, -math.log10((high + usual) / (sum(weights) + PRIOR + NEVER)))
            assert found == pytest.approx(expected, abs=1e-6)


def test_weights_of_a_long_series_stay_finite() -> None:
    tail = DecayingTail(1.0)
    assert all(math.isfinite(tail.surprise(1.0 + place % 7)) for place in range(5000))


LOG: dict[str, object] = {"name": "ensemble", "scale": "log"}


@pytest.mark.parametrize("name", ["ewma", "median_mad", "tail", "ensemble", LOG, "seasonal"])
def test_the_unit_of_a_series_does_not_matter(name: object) -> None:
    chance = random.Random(4)
    values = [chance.gauss(0, 1) + 10 * (place > 1800) for place in range(2000)]
    one, other = detector_of(name), detector_of(name)
    scores = [(one.score(value), other.score(1024 * value + 4096)) for value in values]
    assert sum(first > 0 for first, _ in scores) > 10
    for first, second in scores:
        assert first == pytest.approx(second, rel=1e-6, abs=1e-6)


def test_an_outlier_is_not_learned_as_normal() -> None:
    chance, detector = random.Random(2), Ewma(warm=100)
    for _ in range(1000):
        detector.score(chance.gauss(0, 1))
    assert detector.score(1e6) > 1e5
    assert abs(detector.mean) < 0.3
    assert 0.7 < detector.deviation < 1.4


@given(st.integers(6, 120), st.integers(0, 5))
def test_a_period_is_found_under_noise(period: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    place = np.arange(6 * period)
    values = np.sin(2 * np.pi * place / period) + chance.normal(0, 0.2, len(place))
    found = find_period(values.tolist())
    assert min(found % period, -found % period) <= max(1, period // 20)
    assert find_period(chance.normal(0, 1, 600).tolist()) == 1


def test_a_season_is_no_anomaly_and_a_value_out_of_season_is() -> None:
    chance = random.Random(0)
    values = [10 * math.sin(2 * math.pi * place / 48) + chance.gauss(0, 0.3) for place in range(4000)]
    values[3012] = 10.0  # as high as the series ever is, but an hour of its lowest
    assert math.sin(2 * math.pi * 3012 / 48) < -0.99
    values[3036] = 10.0  # in an hour of its highest
    assert [alarm.at for alarm in find_alarms(values, {"name": "seasonal", "period": 48})] == [3012]
    assert find_alarms(values, "median_mad") == ()


def test_a_season_of_two_periods_is_learned_without_false_alarms_behind_them() -> None:
    """Two values make each place of the season, and are nearer to it than the next ones."""
    places, told = np.arange(1200), 0
    for seed in range(20):
        values = 100 + 30 * np.sin(2 * np.pi * places / 288) + np.random.default_rng(seed).normal(size=1200)
        told += len(find_alarms(values.tolist(), {"name": "seasonal", "period": 288}))
    assert told <= 2


def test_an_alarm_knows_the_season_of_its_detector() -> None:
    """The season begins at the place of the first value; its drop is told as one, by text and as data."""
    chance = np.random.default_rng(3)
    values = 100 + 30 * np.sin(2 * np.pi * np.arange(2000) / 288) + chance.normal(size=2000)
    values[1540:1600] -= 30
    assert SeasonalEsd(period=500).learn == 1000
    file = NamedSeries(name="x", values=tuple(values.tolist()), labels=tuple(map(str, range(2000))))
    for detector in ({"name": "seasonal", "period": 288}, {"name": "tail", "of": {"name": "seasonal", "period": 288}}):
        alarm = next(each for each in find_alarms(file.values, detector) if each.at >= 1500)
        assert len(alarm.season) == 288
        shape = shape_of(file.values, alarm.at, alarm.season)
        assert (shape.kind, shape.since) == ("level", 1540)
        told = re.fullmatch(r"less its season: the level moved from (\S+) to (\S+)", shape_text(shape, file, alarm))
        assert told
        assert [float(each) for each in told.groups()] == pytest.approx([100, 70], abs=3)
        assert shape.usual + shape.season == pytest.approx(values[1540] + 30, abs=6)


def test_the_critical_value_is_rosners() -> None:
    """NIST's handbook of statistics (1.3.5.17.3), on Rosner's 54 values at 5 %: 3.158."""
    assert esd_threshold(54, 0.05) == pytest.approx(3.158, abs=0.002)
    assert SeasonalEsd(alpha=1e-6).threshold > SeasonalEsd(alpha=1e-2).threshold


def test_what_is_wrong_is_said() -> None:
    for spec, message in (
        ("ensembel", "did you mean 'ensemble'"),
        ({"name": "ewma", "half_life": -1.0}, "half_life is -1.0; it must be at least 0.1 values"),
        ({"name": "ensemble", "half_life": 0.0005}, "half_life is 0.0005; it must be at least 0.1 values"),
        ({"name": "tail", "half_life": 0.0005}, "half_life is 0.0005; it must be at least 0.1 values"),
        ({"name": "seasonal", "window": 2}, "window is 2; it must be at least 3"),
        ({"name": "seasonal", "alpha": 1e-15}, "alpha is 1e-15; it must lie between 4.44089e-14 and 1"),
        ({"name": "ewma", "warm": 1}, "at least 2"),
        ({"name": "median_mad", "window": 1}, "at least 3"),
        ({"name": "adwin", "delta": 2.0}, "between 0 and 1"),
        ({"name": "seasonal", "period": 500, "learn": 600}, "learn is 600; it must span two periods at least, 1,000"),
        ({"name": "ensemble", "period": 288}, "no setting of ensemble, but of seasonal; name that detector"),
        ("json:JSONDecoder", "no score and no to_raw"),
    ):
        with pytest.raises(UsageError, match=message):
            detector_of(spec)
    for values, message in (([1.0, math.nan], "value 1 .*nan"), ([1.0] * 50, "50 values, and .* 100")):
        with pytest.raises(UsageError, match=message):
            find_alarms(values)


def test_error_rates_hold_from_the_first_value_that_is_judged() -> None:
    """An early record of a short past is no alarm; before, every calm series had one, most often at its first value."""
    calm = [np.random.default_rng(seed).normal(size=500).tolist() for seed in range(30)]
    for name in ("ensemble", "tail"):
        assert sum(len(find_alarms(values, name)) for values in calm) <= 1
    assert find_alarms([float(place % 7) for place in range(400)]) == ()


def test_shifts_and_spikes_are_told_all_the_same() -> None:
    place = np.arange(1000)
    changes = {50: 5.0 * (place >= 700), 2: 10.0 * (place == 700), 300: np.clip((place - 700) / 60, 0, 5)}
    for within, change in changes.items():
        told = 0
        for seed in range(20):
            values = np.random.default_rng(seed).normal(size=1000) + change
            told += any(700 <= alarm.at < 700 + within for alarm in find_alarms(values.tolist()))
        assert told >= 19, within


def test_a_level_that_moved_is_told_once() -> None:
    """Its blocks stay unlike those before for longer than an episode; another alarm was raised for that."""
    found = []
    for seed in range(20):
        values = np.random.default_rng(seed).normal(size=1500) + 5.0 * (np.arange(1500) >= 700)
        found += [alarm.at for alarm in find_alarms(values.tolist()) if alarm.at >= 700]
    assert len(found) <= 21
    assert sum(at >= 750 for at in found) <= 1


def test_a_sensor_that_freezes_is_told_while_it_does_and_nights_are_no_freeze() -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).normal(size=1400).round(1)
        values[700:1300] = values[700]
        found = [alarm.at for alarm in find_alarms(values.tolist()) if alarm.at < 1300]
        assert len(found) <= 2
        assert 700 < found[0] <= 715
        nights = np.random.default_rng(seed).normal(size=3000)
        nights[np.arange(3000) % 288 < 100] = -1
        assert [alarm.at for alarm in find_alarms(nights.tolist()) if alarm.at > 500] == []


@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_moves_of_the_mean_are_in_standard_errors(mean: float) -> None:
    """As Welch's test counts them, with differences of neighbouring blocks in place of the deviation."""
    values = np.random.default_rng(0).normal(mean, 2, 400) + 1.5 * (np.arange(400) >= 320)
    shift = MeanShift()
    scores = [score for value in values.tolist() if (score := shift.score(value)) is not None]
    blocks = values.reshape(40, 10).mean(1)
    wanted = []
    for newest in (2, 4, 8, 16):
        older, new = blocks[:-newest], blocks[-newest:]
        error = math.sqrt((np.diff(older) ** 2).mean() / 2 * (1 / len(older) + 1 / newest))
        wanted.append(abs(new.mean() - older.mean()) / error)
    assert len(scores) == 40
    assert scores[:9] == [0.0] * 9
    assert scores[-1] == pytest.approx(max(wanted), rel=1e-6 if mean == 0 else 1e-2)


@pytest.mark.parametrize("name", ["ensemble", "ewma", "tail"])
def test_an_alarm_does_not_hide_one_that_is_far_worse(name: str) -> None:
    values = np.random.default_rng(3).normal(size=700)
    values[600], values[640], values[641] = 14, 150, 20
    assert [alarm.at for alarm in find_alarms(values.tolist(), name)] == [600, 640]


def test_the_tail_of_a_skewed_law_is_no_alarm_on_a_scale_of_logarithms() -> None:
    """Either way round; a shift by five deviations of the law is one, and a state in the first values goes on."""
    for seed in range(3):
        noise = np.random.default_rng(seed).lognormal(size=2000)
        calm = [len(find_alarms((sign * noise).tolist(), LOG)) for sign in (1, -1)]
        assert calm[0] == calm[1] <= 1 <= len(find_alarms(noise.tolist()))
        noise[1000:] += 5 * (math.e * (math.e - 1)) ** 0.5
        assert any(1000 <= alarm.at < 1050 for alarm in find_alarms(noise.tolist(), LOG))
    whole, first, second = AlarmingSeries(LOG), AlarmingSeries(LOG), AlarmingSeries(LOG)
    scores = [whole.detector.score(value) for value in noise.tolist()]
    half = [first.detector.score(value) for value in noise[:50].tolist()]
    second.from_raw(json.loads(json.dumps(first.to_raw())))
    assert half + [second.detector.score(value) for value in noise[50:].tolist()] == scores
    with pytest.raises(UsageError, match="scale is 'logs'; it must be 'plain' or 'log'"):
        detector_of({"name": "ensemble", "scale": "logs"})


def test_a_constant_beginning_has_a_scale() -> None:
    values = [5.0] * 150 + [5.0 + place % 2 for place in range(100)]
    assert all(math.isfinite(alarm.score) for alarm in find_alarms(values, LOG))
    assert find_alarms([0.0] * 150 + [1.0], LOG)


def test_what_is_no_number_is_named() -> None:
    for bad in (1e308, -1e200, math.inf, None, "7", np.zeros(2), 1j, True):
        with pytest.raises(
            UsageError, match=r"value 1 of the series is .*; detectors take finite numbers up to 1e\+150"
        ):
            find_alarms([0.0, bad])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="threshold is -1; it must be finite, and 0 or more"):
        find_alarms([0.0], threshold=-1)
    large = np.random.default_rng(0).normal(size=300) * 1e149
    assert find_alarms(np.append(large, 1e150).tolist(), "ewma")[-1].at == 300


def test_state_of_an_earlier_version_goes_on() -> None:
    """It knows nothing of how far off values were."""
    values = np.random.default_rng(1).normal(size=400).tolist()
    earlier, now = AlarmingSeries(), AlarmingSeries()
    for value in values:
        earlier.add(value)
    raw = json.loads(json.dumps(earlier.to_raw()))
    del raw["_usual"], raw["_farthest"], raw["detector"]["episodes"]["_farthest"]
    del raw["detector"]["shift"], raw["detector"]["shift_tail"], raw["detector"]["frozen"]
    now.from_raw(raw)
    assert now.add(40.0) is not None


class Above:
    """A detector of one's own, which keeps nothing."""

    warm, threshold = 0, 0.0

    def score(self, value: float) -> float:
        return max(0.0, value - 3)

    def to_raw(self) -> dict[str, object]:
        return {}

    def from_raw(self, raw: dict[str, object]) -> None: ...


def test_a_detector_of_ones_own_needs_no_registration() -> None:
    made: Detector = Above()
    assert made.score(5) == 2
    alarms = find_alarms([1, 5, 1, 5, 5] + [0] * 100 + [4], "streaming.detectors.test_detectors:Above")
    assert [(alarm.at, alarm.score) for alarm in alarms] == [(1, 2.0), (105, 1.0)]
