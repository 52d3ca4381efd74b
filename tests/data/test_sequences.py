"""Events as samples: histories hold what was strictly before, splits are by time, and bad events are told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import SequencesSpec, load_spec, open_dataset, spec_from_raw
from recsmith.errors import CorruptFile, UsageError

pytest.importorskip("pyarrow")
RULES = {"user": [0, 0, 0, 0, 1, 1, 2], "item": [3, 1, 4, 1, 2, 0, 5], "time": [10, 30, 20, 30, 5, 50, 9]}


def written(folder: Path, **columns: Any) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({**RULES, "liked": [1.0, 0.0, 1.0, 0.5, 1.0, 0.0, 1.0], **columns}), folder / "e.parquet")
    return str(folder / "e.parquet")


def a_spec(path: str, **words: Any) -> SequencesSpec:
    files = {"paths": [path], "labels": ["liked"], **words.pop("files", {})}
    made = spec_from_raw({"format": "sequences", "files": files, **words}, "test")
    assert isinstance(made, SequencesSpec)
    return made


def everything(spec: SequencesSpec) -> list[dict[str, Any]]:
    """Each sample as lists, in order."""
    source = open_dataset(spec).source
    found: list[dict[str, Any]] = []
    for block in range(len(source.sizes())):
        samples = source.read(block).samples
        assert len(samples) == source.sizes()[block]
        for at in range(len(samples)):
            one = samples.take(np.array([at]))
            found.append(
                {**{name: each.values.tolist() for name, each in one.ids.items()}, "label": one.labels[0].tolist()}
            )
    return found


def test_a_history_holds_what_was_strictly_before_oldest_first(tmp_path: Path):
    found = everything(a_spec(written(tmp_path)))
    assert [(each["user"], each["history"], each["times"], each["target"], each["target_time"]) for each in found] == [
        ([0], [3], [10], [4], [20]),
        ([0], [3, 4], [10, 20], [1], [30]),  # two in one second: neither knows the other
        ([0], [3, 4], [10, 20], [1], [30]),
        ([1], [2], [5], [0], [50]),
    ]
    assert [each["label"] for each in found] == [[1.0], [0.0], [0.5], [0.0]]


def test_a_history_holds_the_newest_events_and_targets_have_enough(tmp_path: Path):
    path = written(tmp_path)
    assert [each["history"] for each in everything(a_spec(path, longest=1))] == [[3], [4], [4], [2]]
    assert [each["history"] for each in everything(a_spec(path, least=2))] == [[3, 4], [3, 4]]
    assert len(everything(a_spec(path, least=0))) == 7


def test_notes_say_what_was_put_in_order_and_left_out(tmp_path: Path):
    note = open_dataset(a_spec(written(tmp_path))).note
    assert "1 event came after a later one of their user, and were put in order of time" in note
    assert "3 events have fewer than 1 event of their user before them" in note


def test_generated_histories_never_hold_later_events_and_splits_follow_each_other():
    events = {"users": 40, "items": 60, "kinds": 5, "events": 30}
    spec = {"format": "sequences", "generated": events, "negatives": 2, "longest": 7}
    asked, ends = 0, dict[str, tuple[int, int]]()
    for split in ("train", "valid", "test"):
        found = everything(spec_from_raw({**spec, "split": split}, "x"))  # type: ignore[arg-type]
        for each in found:
            asked += 1
            assert all(time < each["target_time"][0] for time in each["times"])
            assert each["times"] == sorted(each["times"])
            assert 1 <= len(each["history"]) <= 7
        times = [each["target_time"][0] for each in found]
        ends[split] = min(times), max(times)
        labels = [each["label"][0] for each in found]
        assert labels == [1.0, 0.0, 0.0] * (len(found) // 3)
    assert asked > 2000
    assert ends["train"][1] <= ends["valid"][0] <= ends["valid"][1] <= ends["test"][0]


def test_negatives_are_items_that_the_user_never_had():
    spec = spec_from_raw(
        {"format": "sequences", "generated": {"users": 30, "items": 400, "events": 20}, "negatives": 3}, "x"
    )
    found = everything(spec)  # type: ignore[arg-type]
    had: dict[int, set[int]] = {}
    for each in found:
        had.setdefault(each["user"][0], set()).update(each["history"], each["target"] if each["label"][0] else [])
    wrong = [each for each in found if not each["label"][0] and each["target"][0] in had[each["user"][0]]]
    assert len(wrong) <= len(found) * 0.001


def test_the_last_targets_of_users_are_for_test_and_valid(tmp_path: Path):
    path = written(tmp_path)
    found = {split: everything(a_spec(path, split=split, split_by="last")) for split in ("test", "valid", "train")}
    assert [(each["user"], each["target_time"]) for each in found["test"]] == [([0], [30]), ([1], [50])]
    assert [(each["user"], each["target_time"]) for each in found["valid"]] == [([0], [30])]
    assert [(each["user"], each["target_time"]) for each in found["train"]] == [([0], [20])]


def event_times(spec: Any) -> Any:
    source: Any = open_dataset(spec).source
    return source.events.times


def test_times_of_any_kind_and_raw_ids_are_events(tmp_path: Path):
    import pyarrow
    import pyarrow.parquet

    plain = event_times(a_spec(written(tmp_path)))
    seconds = pyarrow.array(RULES["time"], pyarrow.timestamp("s", "UTC"))
    for each in (seconds, seconds.cast(pyarrow.timestamp("us", "UTC")), seconds.cast(pyarrow.string())):
        assert np.array_equal(event_times(a_spec(written(tmp_path, time=each))), plain)
    rng = np.random.default_rng(0)
    raw = {"user": rng.integers(0, 9, 300) + 2**61, "item": rng.integers(0, 200, 300) + 2**61}
    made = pyarrow.table(raw | {"time": np.arange(300), "liked": np.ones(300)})
    pyarrow.parquet.write_table(made, tmp_path / "raw.parquet")
    spec = a_spec(str(tmp_path / "raw.parquet"), negatives=3)
    with open_dataset(spec).batches(rank=0, world_size=1, batch_size=900, seed=0) as batches:
        batch = next(batches)
    targets, users = batch.ids["target"].values, batch.ids["user"].values
    had = set(zip(raw["user"].tolist(), raw["item"].tolist(), strict=True))
    drawn = [(u, i) for u, i, label in zip(users, targets, batch.labels[:, 0], strict=True) if label == 0]
    assert {i for _, i in drawn} <= set(raw["item"].tolist()), "an item that nobody ever had is told from any other"
    assert not any(pair in had for pair in drawn)


def test_what_is_written_reads_back(tmp_path: Path):
    from recsmith.data.converting import convert_dataset

    spec = a_spec(written(tmp_path, kind=[0, 1, 2, 0, 1, 2, 0]), files={"action": "kind"})
    convert_dataset(open_dataset(spec), tmp_path / "out")
    again = open_dataset(load_spec(tmp_path / "out"))
    assert again.schema == open_dataset(spec).schema
    with again.batches(rank=0, world_size=1, batch_size=4, seed=0, shuffle=False) as batches:
        batch = next(batches)
    assert batch.ids["history"].values.tolist() == [3, 3, 4, 3, 4, 2]
    assert batch.ids["times"].values.tolist() == [10, 10, 20, 10, 20, 5]


def test_the_truth_of_generated_events_is_the_chance_of_what_came():
    from recsmith.data.sequences.events import drawn_events
    from recsmith.data.sequences.spec import GeneratedEvents

    events, chances = drawn_events(GeneratedEvents(users=400, items=100, kinds=4, events=60, drift=10))
    kinds = events.items % 4
    assert chances.sum(axis=1) == pytest.approx(1)
    for kind in range(4):  # of events to which the truth gives a chance, so many are of the kind
        likely = chances[:, kind] > 0.5
        assert likely.sum() > 1000
        assert (kinds[likely] == kind).mean() == pytest.approx(chances[likely, kind].mean(), abs=0.02)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"files": {"labels": []}}, "targets have no labels"),
        ({"files": {"item": "movie"}}, "has no column 'movie'"),
        ({"files": {"num_items": 3}}, "an event has id 5 of items, and files.num_items is 3"),
        ({"files": {"item": "time"}}, "files names column 'time' twice"),
        ({"longest": 0}, r"longest is 0; it must be at least 1$"),
        ({"longest": 10**6}, "longest is 1,000,000"),
        ({"least": 9, "longest": 9}, "no target is left: 7 events of 7 have fewer than 9 events"),
        ({"movielens": {"path": "x"}}, "events come from files and movielens"),
        ({"files": {"labels": ["time"], "time": "user", "user": "item", "item": "liked"}}, "holds float"),
    ],
)
def test_bad_specs_and_events_are_told_in_a_sentence(tmp_path: Path, words: dict[str, Any], said: str):
    path = written(tmp_path)
    with pytest.raises((UsageError, CorruptFile), match=said) as caught:
        open_dataset(a_spec(path, **words))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"liked": [1.0, None, 1.0, 0.5, 1.0, 0.0, 1.0]}, "has 1 event without label 'liked'; a target needs one"),
        ({"liked": [1.0, 4.0, 1.0, 0.5, 1.0, 0.0, 1.0]}, "label 'liked' of .* holds 4"),
        ({"user": [0, 0, None, 0, 1, 1, 2]}, "has 1 event without 'user'"),
        ({"item": [0, 0, -4, 0, 1, 1, 2]}, "column 'item' of .* holds -4"),
    ],
)
def test_bad_events_are_told_in_a_sentence(tmp_path: Path, columns: dict[str, Any], said: str):
    with pytest.raises(CorruptFile, match=said):
        open_dataset(a_spec(written(tmp_path, **columns)))


def test_candidates_are_a_target_with_items_that_its_user_never_had():
    events = {"users": 30, "items": 400, "events": 20}
    spec = {"format": "sequences", "generated": events, "candidates": 5, "longest": 6}
    source: Any = open_dataset(spec_from_raw(dict(spec), "x")).source
    plain: Any = open_dataset(spec_from_raw({**spec, "candidates": 0, "negatives": 1}, "x")).source
    samples, others = source.read(0).samples, plain.read(0).samples
    asked = samples.ids["target"].values.reshape(-1, 6)
    assert asked[:, 0].tolist() == others.ids["target"].values[::2].tolist()
    had = set(zip(plain.events.users.tolist(), plain.events.items.tolist(), strict=True))
    users = samples.ids["user"].values
    drawn = zip(np.repeat(users, 5).tolist(), asked[:, 1:].ravel().tolist(), strict=True)
    assert had.isdisjoint(drawn)
    assert len(np.unique(asked[:, 1:])) > 300
    rows = np.array([7, 3, 200])
    assert source.lengths(0, "target").tolist() == [6] * len(asked)
    np.testing.assert_array_equal(source.rows(0, rows).samples.ids["target"].values, asked[rows].ravel())
    assert samples.label_names == ("next",)
    assert samples.labels.min() == 1
    with pytest.raises(CorruptFile, match=r"negatives is 1 and candidates is 2; .* give one"):
        spec_from_raw({**spec, "candidates": 2, "negatives": 1}, "x")
