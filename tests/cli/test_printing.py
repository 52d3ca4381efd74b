"""How far a run is, printed: at most as often as a reader follows, and the end in any case."""

import sys

import pytest

from recsmith.cli import printing
from recsmith.cli.printing import end_line, is_watched, note, progress_printer, proof_printer, search_printer


@pytest.mark.parametrize("answer", [True, False, None])
def test_only_a_terminal_is_watched(answer: bool | None, monkeypatch: pytest.MonkeyPatch):
    class Stream:
        def isatty(self) -> bool:
            return answer is True

    monkeypatch.setattr(sys, "stderr", None if answer is None else Stream())
    assert is_watched() is (answer is True)


def test_a_log_gets_a_line_every_so_many_seconds_and_the_last_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    clock = iter([0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0])  # read when made, at each progress, and at each line
    monkeypatch.setattr(printing.time, "monotonic", lambda: next(clock))
    on_progress = progress_printer(str, 2.0, lambda number: number == 4)
    for number in (1, 2, 3, 4):
        on_progress(number)
    assert capsys.readouterr().err == "recsmith: 2\nrecsmith: 4\n"


def test_a_terminal_gets_one_line_that_is_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(printing, "is_watched", lambda: True)
    on_progress = progress_printer(str, 60.0, at_once=True)
    on_progress(1)
    on_progress(2)  # too soon
    assert capsys.readouterr().err == "\rrecsmith: 1"  # click drops the erasing code here


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]):
    note("beware")
    assert capsys.readouterr() == ("", "recsmith: note: beware\n")


def test_a_search_is_followed_on_a_terminal_once_it_has_taken_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert search_printer() is None  # nobody watches
    monkeypatch.setattr(printing, "is_watched", lambda: True)
    clock = iter([0.0, 0.0, 1.0, 7.0, 7.0, 7.0, 7.0])  # made twice; a gain after 1 s, and one after 7 s
    monkeypatch.setattr(printing.time, "monotonic", lambda: next(clock))
    on_improve = search_printer(quiet_s=2.0)
    assert on_improve is not None
    on_improve(0.002)
    on_improve(0.001)
    end_line()
    assert capsys.readouterr().err == "\rrecsmith: 7 s, best step 1 ms; Ctrl-C ends with it\r"  # as above


def test_both_ends_of_a_proof_are_followed_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert proof_printer() is None  # nobody watches
    monkeypatch.setattr(printing, "is_watched", lambda: True)
    clock = iter([0.0, 0.0, 1.0, 7.0, 7.0, 7.0, 7.0])
    monkeypatch.setattr(printing.time, "monotonic", lambda: next(clock))
    on_bound = proof_printer(quiet_s=2.0)
    assert on_bound is not None
    on_bound(0.002, 0.001)
    on_bound(0.002, 0.0016)
    assert "proving: best step 2 ms, bound 1.6 ms, 25.00% apart" in capsys.readouterr().err
