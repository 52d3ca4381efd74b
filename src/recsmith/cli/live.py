"""One line on stderr that shows that a long command is alive: what it does, for how long, and its latest progress.

The line appears on a terminal only, once a command has run for a while. A thread redraws it every half second; it is
erased when the command prints its result. Notes that are printed meanwhile appear above it.
"""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from recsmith.errors import printable

# seconds before the line first appears (shorter runs show none), and between two drawings of it
QUIET_S, EVERY_S = 0.3, 0.5
ERASED = "\r\x1b[K"  # terminal code that erases a line


class LiveLine:
    """The progress line of a running command."""

    def __init__(self, doing: str, since_s: float = 0.0) -> None:
        self.doing, self.detail, self.begun = doing, "", time.monotonic() - since_s
        self._drawn = False
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._draw_on, daemon=True)

    def tell(self, text: str) -> None:
        """Set the progress text, which is shown when the line is next drawn."""
        self.detail = text

    def clear(self) -> None:
        """Erase the line, so that something else can be printed; the next drawing is below that."""
        with self._lock:
            if self._drawn:
                _write(ERASED)
            self._drawn = False

    def start(self) -> None:
        """Start the thread that draws."""
        self._thread.start()

    def end(self) -> None:
        """Stop drawing, and erase the line."""
        self._ended.set()
        self._thread.join()
        self.clear()

    def words(self, seconds: float, columns: int) -> str:
        """The line after `seconds`, cut to the terminal's width: a longer one wraps and could not be overwritten."""
        detail = f": {self.detail}" if self.detail else ""
        return printable(f"recsmith: {self.doing}, {seconds:.0f} s{detail}")[: columns - 1]

    def _draw_on(self) -> None:
        wait_s = max(0.0, QUIET_S - (time.monotonic() - self.begun))
        while not self._ended.wait(wait_s):
            wait_s = EVERY_S
            with self._lock:
                self._drawn = True
                text = self.words(time.monotonic() - self.begun, shutil.get_terminal_size().columns)
                _write(ERASED + text)


_running: list[LiveLine] = []  # at most one line


def running() -> LiveLine | None:
    """The line that is being drawn; None if there is none."""
    return _running[0] if _running else None


@contextmanager
def live(doing: str, age_s: Callable[[], float] = float) -> Generator[None]:
    """Draw a line while the block runs, if stderr is a terminal and no other line is being drawn.

    age_s: seconds that the command has already taken.
    """
    if _running or not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    line = LiveLine(doing, age_s())
    _running.append(line)
    line.start()
    try:
        yield
    finally:
        _running.remove(line)
        line.end()


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # the terminal was closed
        pass
