"""What the log of a run says of its watch: alarms with what was done, of a live, a finished or an unwatched run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from jobs.test_log_lines import DAMAGED, write

from recsmith.errors import CorruptFile, UsageError
from recsmith.training.results.watched import slow_trainer_of_run
from recsmith.training.systems.watch.alarm_log import read_watched

ALARM = {"event": "alarm", "step": 208, "since": 200, "kind": "flipped_labels", "of": "", "because": "labels oppose",
         "action": "save"}  # fmt: skip
DONE = {"event": "watcher", "step": 216, "what": "save", "because": "labels oppose", "done": "saved"}
SIGNALS = {"event": "watch", "step": 200, "loss": 0.5, "hot_set/f0": 0.3}


def a_log(folder: Path, *events: dict[str, Any], end: str = "") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + end)
    return str(folder)


@pytest.mark.parametrize("line", DAMAGED)
def test_damaged_lines_are_left_out(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, line)
    assert read_watched(str(tmp_path)).step == 4


@pytest.mark.parametrize("line", [
    {"event": "alarm", "step": 3, "kind": "ne", "because": "b", "action": None},
    {"event": "alarm", "step": 3, "since": "x", "kind": "ne", "because": 5, "action": None},
    {"event": "ranks", "step": 3, "step_s": "a", "own_s": [0.1, "x"], "servers_s": None},
])  # fmt: skip
def test_a_line_that_lacks_something_is_named(tmp_path: Path, line: dict[str, object]) -> None:
    write(tmp_path, json.dumps(line).encode())
    with pytest.raises(CorruptFile, match=r"lacks|is \"x\"|fields are wrong"):
        read_watched(str(tmp_path))


def test_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(UsageError, match="it is a pipe; data lies in files"):
        read_watched(str(tmp_path))


def test_alarms_are_shown_with_what_was_done(tmp_path: Path) -> None:
    again = {**ALARM, "step": 400, "since": 392, "action": None}
    other = {"event": "watcher", "step": 300, "what": "roll_back", "because": "the loss is not finite", "done": "on"}
    folder = a_log(tmp_path / "run", SIGNALS, ALARM, DONE, other, again, end='{"event": "al')
    run = read_watched(folder)
    assert (run.step, run.watched, run.ended, run.signals) == (400, True, False, {"loss": 0.5, "hot_set/f0": 0.3})
    assert [(each.step, each.since, each.kind, each.done) for each in run.alarms] == [
        (208, 200, "flipped_labels", "save: saved"),
        (300, 300, "roll_back", "on"),
        (400, 392, "flipped_labels", ""),
    ]
    assert [each.step for each in read_watched(folder, until=299).alarms] == [208]
    assert read_watched(folder, until=210).alarms[0].done == ""
    (tmp_path / "run/model").mkdir()
    (tmp_path / "run/model/card.json").write_text("{}")
    assert read_watched(folder).ended
    assert not read_watched(folder, until=300).ended


def test_lines_of_a_run_that_was_not_watched_are_judged(tmp_path: Path) -> None:
    losses = [0.5 + 0.001 * (step % 5) for step in range(60)]
    losses[50] = 0.9
    lines = [{"event": "train", "step": 10 * step, "logloss": loss, "ne": None} for step, loss in enumerate(losses)]
    run = read_watched(a_log(tmp_path / "run", *lines))
    assert not run.watched
    assert [(each.step, each.since, each.kind) for each in run.alarms] == [(500, 490, "logloss")]
    assert "robust deviations" in run.alarms[0].because


def test_a_rank_that_the_others_waited_for_is_told(tmp_path: Path) -> None:
    ranks = {"event": "ranks", "step": 40, "step_s": 0.7, "own_s": [0.05, 0.55], "servers_s": 0.1, "served": False}
    folder = a_log(tmp_path / "run", SIGNALS, ranks)
    told = str(slow_trainer_of_run(folder))
    assert told.startswith("trainer 1 is 3.5 times as slow as the others")
    assert read_watched(folder).slow == told
    assert read_watched(folder, until=39).slow is None
    assert slow_trainer_of_run(str(tmp_path / "none")) is None
    with pytest.raises(CorruptFile, match="a line lacks 'served'; it is damaged"):
        slow_trainer_of_run(a_log(tmp_path / "bad", {key: each for key, each in ranks.items() if key != "served"}))


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no log.jsonl; give the output folder of a run"):
        read_watched(str(tmp_path))
    damaged = {name: value for name, value in ALARM.items() if name != "since"}
    with pytest.raises(CorruptFile, match="a line lacks 'since'; it is damaged, or of another version"):
        read_watched(a_log(tmp_path / "run", SIGNALS, damaged))
    assert read_watched(a_log(tmp_path / "empty")).alarms == ()
