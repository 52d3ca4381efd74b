"""One line on stderr that says that a long command lives: what it does, for how long, and what it told last.

It appears once a command has taken a while, on a terminal alone, is written over every half second by a thread of its
own, and is gone when the command prints its result. Notes that are printed meanwhile stand above it.
"""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from recsmith.errors import printable

QUIET_S, EVERY_S = 0.3, 0.5  # seconds before the line appears: shorter runs are not worth one; and between two of them
ERASED = "\r\x1b[K"  # what makes a terminal erase a line


class LiveLine:
    """The line of a command that runs."""

    def __init__(self, doing: str, since_s: float = 0.0) -> None:
        self.doing, self.told, self.begun = doing, "", time.monotonic() - since_s
        self._drawn = False
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._draw_on, daemon=True)

    def tell(self, text: str) -> None:
        """Say how far it is; shown the next time that the line is drawn."""
        self.told = text

    def clear(self) -> None:
        """Erase the line, so that something else can be printed; it comes back below that."""
        with self._lock:
            if self._drawn:
                _write(ERASED)
            self._drawn = False

    def start(self) -> None:
        """Begin to draw."""
        self._thread.start()

    def end(self) -> None:
        """Stop drawing, and erase the line."""
        self._ended.set()
        self._thread.join()
        self.clear()

    def words(self, seconds: float, columns: int) -> str:
        """The line after so many seconds, cut to a terminal's width, which a longer one would not go back over."""
        told = f": {self.told}" if self.told else ""
        return printable(f"recsmith: {self.doing}, {seconds:.0f} s{told}")[: columns - 1]

    def _draw_on(self) -> None:
        wait_s = max(0.0, QUIET_S - (time.monotonic() - self.begun))
        while not self._ended.wait(wait_s):
            wait_s = EVERY_S
            with self._lock:
                self._drawn = True
                text = self.words(time.monotonic() - self.begun, shutil.get_terminal_size().columns)
                _write(ERASED + text)


_running: list[LiveLine] = []  # at most one


def running() -> LiveLine | None:
    """The line that is drawn now; None without one."""
    return _running[0] if _running else None


@contextmanager
def live(doing: str, age_s: Callable[[], float] = float) -> Generator[None]:
    """Draw the line while the block runs, where stderr is a terminal and no other line is drawn.

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
    except (OSError, ValueError):  # the terminal went away
        pass
