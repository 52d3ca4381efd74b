"""Plain lines of a log: colours and carriage returns are taken off, folded lines are joined."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planner_logs import REPORTS, bare

from recsmith.workloads.log_lines import plain_lines

TITLE = "--- Planner Statistics ---"
report = cache(bare)


def fold(text: str, width: int) -> str:
    lines = (line[at : at + width] for line in text.splitlines() for at in range(0, max(1, len(line)), width))
    return "\n".join(lines)


@given(
    name=st.sampled_from(REPORTS),
    prefix=st.sampled_from(["", "0: ", "INFO:stats:", "[rank0]: # "]),
    width=st.integers(40, 330),
    copies=st.integers(1, 2),
)
def test_folded_reports_are_joined_at_any_width(name: str, prefix: str, width: int, copies: int):
    whole = [f"{prefix}{line}" for line in report(name).splitlines()] * copies
    text = fold("\n".join(["epoch 0", *whole, "epoch 1"]), width)
    joined = plain_lines(text, TITLE)
    assert [line for line in joined.split("\n") if line] == ["epoch 0", *whole, "epoch 1"]
    assert joined.count("\n") == text.count("\n")  # lines keep their numbers


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[32mINFO\x1b[0m a\x1b[K\n", "INFO a\n"),
        ("\x1b[38;5;196ma\x1b(B\x1b[m\n", "a\n"),
        ('{"log":"\\u001b[1ma"}\n', '{"log":"a"}\n'),
        ("a\r\nb\r\r\nc\r", "a\nb\nc"),
        ("1%\r 2%\rdone\nnext\n", "done\nnext\n"),
        ("[32m a [0m\n", "[32m a [0m\n"),
    ],
)
def test_colours_and_carriage_returns_are_taken_off(text: str, plain: str):
    assert plain_lines(f"{TITLE}\n{text}", TITLE) == f"{TITLE}\n{plain}"


@pytest.mark.parametrize("text", ["", "\x1b[32mred\r\n", f"{'x' * 40}\n{'y' * 40}\nz\n"])
def test_a_text_without_the_word_and_without_frames_is_given_back(text: str):
    assert plain_lines(text, TITLE) is text


def test_frames_that_are_not_folded_join_nothing():
    for text in (report("mixed") + report("cached"), f"{'#' * 80}\n" * 3, f"{'#' * 80}\n" * 3 + "x\ny\n"):
        assert plain_lines(text, TITLE) == text
