"""What a program prints on a terminal of its own."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

OURS = ("COLUMNS", "LINES", "NO_COLOR")  # of this process's environment, which say how its own terminal is


def on_terminal(*words: str, columns: int = 0, **environment: str) -> str:
    """All that Python prints with these words on a terminal, with its signs. columns: of it; 0: it does not say."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50 if columns else 0, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    process = subprocess.Popen([sys.executable, *words], stdin=theirs, stdout=theirs, stderr=theirs,
                               env={**kept, "TERM": "xterm", **environment})  # fmt: skip
    os.close(theirs)
    blocks: list[bytes] = []
    try:
        while block := os.read(ours, 65536):
            blocks.append(block)
    except OSError:  # the end of the last who wrote
        pass
    os.close(ours)
    assert process.wait() == 0
    return b"".join(blocks).decode()
