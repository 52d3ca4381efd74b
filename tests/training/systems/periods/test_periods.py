"""Streams in periods: each sample once, in its period, resumed or not; what does not make a stream is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from recsmith.data import GeneratorSpec, open_dataset, spec_from_raw, write_dataset
from recsmith.errors import CorruptFile, UsageError
from recsmith.testing.sources import SIZE, BatchSourceContract, numbers, read
from recsmith.training import Run, RunData, load_run
from recsmith.training.run.data import BatchSizes
from recsmith.training.sources import open_source
from recsmith.training.systems.periods.settings import Periods
from recsmith.training.systems.periods.source import PeriodSource

GENERATED: dict[str, Any] = {
    "format": "generator", "dense": 2, "num_samples": 430, "features": [{"name": "user", "num_embeddings": 50}],
}  # fmt: skip


def stream(
    train: Any = GENERATED, *, samples: int = 100, update: Any = "incremental", score_ahead: tuple[int, ...] = (1,),
    **data: Any,
) -> PeriodSource:  # fmt: skip
    """The source of a run in periods."""
    periods = Periods(samples=samples, update=update, score_ahead=score_ahead)
    source = open_source(Run(data=RunData(train=train, periods=periods, **data), output="x", seed=3))
    assert isinstance(source, PeriodSource)
    return source


class TestPeriods(BatchSourceContract):
    """Two periods."""

    def make(self, folder: Path) -> Any:
        """Of 200 samples."""
        return stream(samples=200)


class TestWindow(BatchSourceContract):
    """Passes over two periods; a pass is one of several, so samples come again in the next one."""

    def make(self, folder: Path) -> Any:
        """Of one period of 400 samples beside a first one, so that what is looked at lies within a pass."""
        return stream({**GENERATED, "num_samples": 800}, samples=400, update={"name": "window", "periods": 2})


@settings(max_examples=15)
@given(ranks=some.integers(1, 3), again=some.integers(1, 3), stop=some.integers(1, 20), size=some.integers(1, 20))
def test_each_sample_is_used_once_in_its_period_resumed_or_not(ranks: int, again: int, stop: int, size: int) -> None:
    def used(world: int, state: Any, most: int) -> list[tuple[list[int], Any]]:
        found = [read(stream(last="keep"), rank, world, size, state, most) for rank in range(world)]
        assert all([each[1] for each in one] == [each[1] for each in found[0]] for one in found)
        return [
            ([number for batch, _ in step for number in numbers(batch)], step[0][1])
            for step in zip(*found, strict=True)
        ]

    before = used(ranks, None, stop)
    after = used(again, before[-1][1], 500)
    steps = before + after
    assert sorted(number for samples, _ in steps for number in samples) == list(range(400))
    for samples, state in steps:
        assert {number // 100 for number in samples} == {state["epoch"]}, "no step takes samples of another period"
    assert [state["epoch"] for _, state in steps] == sorted(state["epoch"] for _, state in steps)


def test_samples_are_shuffled_inside_a_period() -> None:
    (first, _), *_ = read(stream(), 0, 1, 100)
    assert numbers(first) == list(range(100)), "a batch holds samples as they are stored"
    halves = [set(numbers(batch)) for batch, _ in read(stream(), 0, 1, 50, steps=2)]
    assert halves[0] | halves[1] == set(range(100))
    assert halves[0] != set(range(50))
    stored = [numbers(batch) for batch, _ in read(stream(shuffle=False), 0, 1, 50, steps=2)]
    assert stored == [list(range(50)), list(range(50, 100))]


def test_a_window_takes_the_last_periods_together() -> None:
    source = stream(update={"name": "window", "periods": 3})
    passes: dict[int, list[int]] = {}
    for batch, state in read(source, 0, 1, 20, steps=99):
        passes.setdefault(state["epoch"], []).extend(numbers(batch))
    wanted = {period: range(max(0, period - 2) * 100, period * 100 + 100) for period in range(4)}
    assert {period: sorted(samples) for period, samples in passes.items()} == {
        period: list(samples) for period, samples in wanted.items()
    }
    assert source.steps(BatchSizes(((0, 20),)), 1) == 5 + 10 + 15 + 15


def test_a_feed_gives_the_batches_that_a_thread_gives_resumed_or_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where the feed tells how it does
    words: dict[str, Any] = {"samples": 200, "update": {"name": "window", "periods": 2}, "last": "keep"}
    whole = read(stream(**words), 1, 2, 30, steps=99)
    fed = read(stream(**words, feed=1), 1, 2, 30, steps=99)
    assert [(numbers(batch), state) for batch, state in fed] == [(numbers(batch), state) for batch, state in whole]
    assert {state["epoch"] for _, state in fed} == {0, 1}
    at = len(whole) - 2
    rest = read(stream(**words, feed=1), 1, 2, 30, whole[at][1], 99)
    assert [numbers(batch) for batch, _ in rest] == [numbers(batch) for batch, _ in whole[at + 1 :]]


def test_a_step_of_several_periods_takes_a_batch_of_each_with_its_weight() -> None:
    from dataclasses import replace

    source = replace(stream(), only=2, weights=(1.25, 0.0, -0.5))
    whole = read(source, 0, 2, 10, steps=99)
    assert source.mixed == 2
    assert len(whole) == 5
    for batch, state in whole:
        assert [number // 100 for number in numbers(batch)] == [2] * 10 + [0] * 10
        assert batch.loss_weights is not None
        np.testing.assert_allclose(batch.loss_weights, [2.5] * 10 + [-1.0] * 10)
        assert state["epoch"] == 2
    rest = read(source, 0, 2, 10, whole[1][1], 99)
    assert [numbers(batch) for batch, _ in rest] == [numbers(batch) for batch, _ in whole[2:]]
    alone = read(replace(source, weights=(1.0, 0.0, 0.0)), 0, 2, 10, steps=99)
    plain = read(replace(source, weights=(1.0,)), 0, 2, 10, steps=99)
    assert [(numbers(a), a.loss_weights) for a, _ in alone] == [(numbers(b), None) for b, _ in plain]
    assert [numbers(batch)[:10] for batch, _ in whole] == [numbers(batch) for batch, _ in plain]


def test_an_earlier_period_smaller_than_a_step_is_taken_whole() -> None:
    from dataclasses import replace

    source = replace(stream(last="keep"), edges=np.array([0, 15, 45]), only=1, weights=(1.25, -0.5))
    found = read(source, 0, 1, 20, steps=99)
    assert [[number // 15 for number in numbers(batch)].count(0) for batch, _ in found] == [15, 15]
    for (batch, _), own in zip(found, (20, 10), strict=True):  # the loss divides by the samples of a full step
        assert batch.loss_weights is not None
        np.testing.assert_allclose(batch.loss_weights, [2.5] * own + [-1.0] * 15)


def test_shorter_periods_before_are_taken_again() -> None:
    from dataclasses import replace

    source = replace(stream(), edges=np.array([0, 45, 145]), only=1, weights=(1.0, 1.0))
    older = [number for batch, _ in read(source, 0, 1, 20, steps=99) for number in numbers(batch)[20:]]
    assert len(older) == 100
    assert set(older) <= set(range(45))
    assert len(set(older[:40])) == 40, "none twice before all full steps of it were taken"


def test_data_that_grew_goes_on_with_the_next_period(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for target, first in ((data, 0), (tmp_path / "more", 300)):
        spec = spec_from_raw({**GENERATED, "num_samples": 300, "first_sample": first}, "here")
        assert isinstance(spec, GeneratorSpec)
        write_dataset(open_dataset(spec), target, "parquet")
    kept = read(stream(str(data)), 0, 1, 25, steps=99)
    assert len(kept) == 12
    shutil.copy2(next((tmp_path / "more").glob("*.parquet")), data / "part-00001.parquet")
    grown, state = stream(str(data)), kept[-1][1]
    rest = read(grown, 0, 1, 25, state, 99)
    assert sorted(number for batch, _ in rest for number in numbers(batch)) == list(range(300, 600))
    assert [reached["epoch"] for _, reached in rest] == [period for period in (3, 4, 5) for _ in range(4)]
    within = read(grown, 0, 1, 25, kept[4][1], 99)
    assert [numbers(batch) for batch, _ in within[:7]] == [numbers(batch) for batch, _ in kept[5:]]
    (data / "part-00000.parquet").unlink()
    with pytest.raises(CorruptFile, match=r"the position is of other data"):
        read(stream(str(data)), 0, 1, 25, state)


def test_notes_say_what_is_left() -> None:
    sizes, notes = BatchSizes(((0, 30),)), stream().notes(BatchSizes(((0, 30),)), 1, None)
    assert notes == [
        "data.periods: 4 periods of 100 samples, each scored and then trained on",
        "30 samples are of a period that is not over; they are left until more data comes",
        "up to 10 samples fill no step of 1 rank at the end of a period, and are left out; data.last: keep trains on "
        "them",
    ]
    assert "auto learns the first 7 of them by incremental, window, future_gradient first" in "".join(
        stream(samples=50, update={"name": "auto", "periods": 2, "replayed": 7}).notes(sizes, 1, None)
    )
    short = Run(data=RunData(train=GENERATED, periods=Periods(samples=100, most=2)), output="x")
    assert "230 samples come after them, and are left; data.periods.most is 2" in open_source(short).notes(
        sizes, 1, None
    )
    assert stream().steps(sizes, 1) == 12
    assert stream(last="keep").steps(sizes, 1) == 16


def test_positions_of_other_periods_are_refused() -> None:
    state = read(stream(), 0, 1, SIZE)[-1][1]
    with pytest.raises(
        UsageError, match=r"of period 0, trained on samples 0 to 99, and here it is trained on samples 0 to"
    ):
        read(stream(samples=50), 0, 1, SIZE, state)
    late = read(stream(), 0, 1, 100, steps=4)[-1][1]
    with pytest.raises(
        UsageError, match=r"of period 3, trained on samples 300 to 399, and here there is no such period"
    ):
        read(stream(samples=200), 0, 1, SIZE, late)
    plain = open_source(Run(data=RunData(train=GENERATED), output="x", seed=3))
    with pytest.raises(UsageError, match=r"is of a run without data.periods, which takes samples from anywhere"):
        read(stream(), 0, 1, SIZE, read(plain, 0, 1, SIZE)[-1][1])
    with pytest.raises(UsageError, match="in another way: its position has begins, ends; give the settings of data"):
        read(plain, 0, 1, SIZE, state)
    for damaged in ({"begins": "x"}, {"ends": None}, {"ends": 1.5}):
        with pytest.raises(CorruptFile, match="these are whole numbers; it is damaged"):
            read(stream(), 0, 1, SIZE, state | damaged)


def test_what_makes_no_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"430 samples fill 1 periods, so that none is left to score"):
        stream(samples=400)
    with pytest.raises(UsageError, match=r"data.periods.count is 431, and there are 430 samples"):
        open_source(Run(data=RunData(train=GENERATED, periods=Periods(count=431)), output="x"))
    with pytest.raises(UsageError, match=r"period 0 has 100 samples \(0 to 99\), and a step takes 101; give longer"):
        read(stream(), 0, 1, 101)
    with pytest.raises(
        UsageError, match=r"update needs 5 periods, and the data has 4; give it fewer, or shorter periods"
    ):
        stream(update={"name": "window", "periods": 5})
    with pytest.raises(UsageError, match=r"data\.periods\.update\.periods is 1; 2 or more, or write incremental"):
        stream(update={"name": "window", "periods": 1})
    with pytest.raises(UsageError, match=r"update needs 17 periods, and the data has 4"):
        stream(update="auto")
    with pytest.raises(UsageError, match=r"period 2 has 100 samples \(200 to 299\), and a step takes 120; give longer"):
        stream().steps(BatchSizes(((0, 30), (2, 60))), 2)
    with pytest.raises(
        UsageError, match=r"data.periods needs data in files of a format, and data.train names a source"
    ):
        stream({"source": "own_source:Clicks"})
    with pytest.raises(
        UsageError, match=r"data.epochs is 2, and with data.periods each period is trained when it comes"
    ):
        stream(epochs=2)


@pytest.mark.parametrize(
    ("periods", "said"),
    [
        ("{}", "has none of samples, count and column; give exactly one"),
        ("{samples: 5, count: 2}", "has samples and count; give exactly one"),
        ("{column: time}", "data.periods.column and data.periods.every go together"),
        ("{column: time, every: 0}", "data.periods.every is 0.0; it must be above 0"),
        ("{samples: 0}", "data.periods.samples is 0"),
        ("{samples: 5, score_ahead: [0]}", "data.periods.score_ahead counts periods after the newest one"),
        ("{samples: 5, score_ahead: [2, 2]}", r"data.periods.score_ahead is \[2, 2\], where a number stands twice"),
        ("{samples: 5, update: windows}", "no update is called 'windows'; did you mean 'window'"),
    ],
)
def test_periods_that_a_file_cannot_mean(periods: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"schema: recsmith/run/1\noutput: x\ndata: {{train: day_0, periods: {periods}}}\n"
    )
    with pytest.raises((UsageError, CorruptFile), match=said):
        load_run(tmp_path / "run.yaml")


def test_ratings_by_user_are_no_stream(data: Path) -> None:
    folder = next(iter(sorted(data.glob("**/ratings.csv"))), None)
    if folder is None:
        pytest.skip("no MovieLens folder is there")
    train = {"format": "movielens", "path": str(folder.parent), "split": "all"}
    with pytest.raises(UsageError, match=r"column 'timestamp' falls .* \(of MovieLens, write split_by: time\)"):
        stream(train, samples=5000)
    assert stream({**train, "split_by": "time"}, samples=5000).periods > 10


def test_settings_of_a_stream_that_would_do_nothing_are_refused_or_said() -> None:
    with pytest.raises(
        UsageError, match=r"score_ahead is 20 or more, and the data has \d+ periods, so that none would"
    ):
        stream(score_ahead=(20,))
    made = stream(score_ahead=(1, 20))
    assert any(
        "score_ahead 20: no period comes so late" in note for note in made.notes(BatchSizes(((0, 30),)), 1, None)
    )
    with pytest.raises(UsageError, match=r"update needs 17 periods, and the data has"):
        stream(update={"name": "auto"})  # which replays 16, and has none left to train then
