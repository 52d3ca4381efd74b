"""What every detector keeps; tests of one inherit it and make it."""

import json
import math
import random
from typing import Any, ClassVar

import pytest

from recsmith.errors import CorruptFile
from recsmith.streaming import AlarmingSeries, detector_of


class DetectorContract:
    """Inherit it, and name the detector."""

    spec: ClassVar[Any]
    points: ClassVar[int] = 3000
    beyond: ClassVar[float] = 40.0  # deviations of the planted outlier

    def series(self, seed: int = 0) -> list[float]:
        chance = random.Random(seed)
        return [chance.gauss(5.0, 2.0) for _ in range(self.points)]

    def test_scores_are_finite_and_none_before_it_is_warm(self) -> None:
        detector = detector_of(self.spec)
        scores = [detector.score(value) for value in self.series()]
        assert all(score >= 0 and math.isfinite(score) for score in scores)
        assert not any(scores[: detector.warm])

    @pytest.mark.parametrize("value", [0.0, 7.0, -1e12])
    def test_a_constant_series_is_never_alarming_and_its_first_change_is(self, value: float) -> None:
        series = AlarmingSeries(self.spec)
        assert [alarm for _ in range(self.points) if (alarm := series.add(value))] == []
        changed = [alarm for _ in range(100) if (alarm := series.add(value + 1 + abs(value)))]
        assert changed
        assert changed[0].at < self.points + 60

    def test_a_level_that_jumps_is_found(self) -> None:
        series = AlarmingSeries(self.spec)
        for value in self.series():
            series.add(value)
        found = [alarm for value in self.series(1)[:150] if (alarm := series.add(value + 2 * self.beyond))]
        assert found
        assert self.points <= found[0].at < self.points + 60

    def test_one_that_goes_on_from_its_state_says_the_same(self) -> None:
        values = self.series()
        begun, whole = AlarmingSeries(self.spec), AlarmingSeries(self.spec)
        for cut in (3, len(values) // 3, len(values) - 40):
            for value in values[begun.seen : cut]:
                begun.add(value)
                whole.add(value)
            kept = json.loads(json.dumps(begun.to_raw()))
            begun = AlarmingSeries(self.spec)
            begun.from_raw(kept)
            assert begun.to_raw() == kept
        rest = [*values[-40:], *(value + 50 for value in values[:40])]
        assert [(begun.add(value), begun.last) for value in rest] == [(whole.add(value), whole.last) for value in rest]

    def test_state_of_another_version_is_refused(self) -> None:
        detector = detector_of(self.spec)
        for raw in ({}, {"gone": 1}, [], {**detector.to_raw(), "more": 2}):
            with pytest.raises(CorruptFile, match="another version"):
                detector.from_raw(raw)
