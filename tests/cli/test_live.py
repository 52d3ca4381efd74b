"""One line that says that a command lives: on a terminal alone, after a while, gone before the result."""

import re
import subprocess
import sys
import threading
import time

import pytest
from support.terminals import on_terminal

from recsmith.cli import live as module
from recsmith.cli.live import LiveLine, live, running
from recsmith.cli.printing import note, search_printer

LONG = """
import time
from recsmith.cli.live import live
from recsmith.cli.printing import note, search_printer
with live("planning"):
    on_improve = search_printer()
    time.sleep(0.4)
    on_improve(0.002)
    time.sleep(0.6)
    note("a table is odd")
    time.sleep(0.6)
print("result")
"""


def test_a_terminal_sees_one_line_that_counts_and_leaves():
    seen = on_terminal("-c", LONG).replace("\r\n", "\n")
    assert seen.startswith("\r\x1b[Krecsmith: planning, 0 s")
    assert "recsmith: planning, 1 s: best step 2 ms; Ctrl-C ends with it" in seen
    above, _, after = seen.partition("\x1b[33m\x1b[1mrecsmith:\x1b[0m note: a table is odd\n")
    assert above.endswith("\r\x1b[K")  # what stood there is erased first
    assert "best step 2 ms" in after  # and comes back below
    assert seen.endswith("\r\x1b[Kresult\n")


def test_no_color_leaves_the_colours_out():
    seen = on_terminal("-c", LONG, NO_COLOR="1").replace("\r\n", "\n")
    assert "recsmith: note: a table is odd\n" in seen
    assert re.sub(r"\x1b\[K", "", seen).count("\x1b") == 0


def test_no_terminal_sees_no_line():
    done = subprocess.run([sys.executable, "-c", LONG.replace("on_improve(0.002)", "assert on_improve is None")],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert (done.stdout, done.stderr) == ("result\n", "recsmith: note: a table is odd\n")


def test_a_short_run_has_no_line_and_inner_ones_share_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(module.sys, "stderr", Watched(sys.stderr))
    with live("planning"):
        outer = running()
        with live("pricing"):
            assert running() is outer
        on_improve = search_printer()
        assert on_improve is not None
        on_improve(0.003)
        assert outer is not None
        assert outer.detail == "best step 3 ms; Ctrl-C ends with it"
        note("beware")
    assert running() is None
    assert "planning" not in capsys.readouterr().err


def test_the_line_is_gone_after_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.sys, "stderr", Watched(sys.stderr))
    with pytest.raises(KeyboardInterrupt), live("planning"):
        raise KeyboardInterrupt
    assert running() is None


def test_the_line_comes_0_3_seconds_after_the_command_began(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.sys, "stderr", Watched(sys.stderr))
    drawn = threading.Event()
    monkeypatch.setattr(module, "_write", lambda _: drawn.set())
    monkeypatch.setattr(module, "QUIET_S", 1000.0)
    with live("planning", lambda: 1000.0):
        assert drawn.wait(10)
    drawn.clear()
    with live("planning"):
        assert not drawn.wait(0.05)


def test_a_line_is_cut_to_the_terminal():
    line = LiveLine("planning")
    line.tell("a" * 200 + "\x1b[2J")
    assert len(line.words(3.0, 60)) == 59
    assert line.words(3.0, 400) == "recsmith: planning, 3 s: " + "a" * 200 + r"\x1b[2J"
    assert time.monotonic() >= line.begun


class Watched:
    """Standard error as if it were a terminal."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
