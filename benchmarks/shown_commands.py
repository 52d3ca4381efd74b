"""What pages show of RecSmith is run as it stands there, from top to bottom, and beside it what is printed today.

    python benchmarks/shown_commands.py docs/tutorial.md             # says where a page shows what is not printed
    python benchmarks/shown_commands.py docs/tutorial.md --write     # puts what is printed today into the page
    python benchmarks/shown_commands.py docs/sweep.md --dear         # also runs what takes a minute

In a page, lines `$ recsmith ...` of a block are run, in a folder of the page's own that holds examples/, and what
follows each is compared with its output: spaces and seconds of planning do not count, and a line `...` stands for any
lines. A block whose first line is `# NAME.yaml` or the like becomes that file. Blocks of Python that start with
`import recsmith` or `from recsmith import` are run in one namespace; a `text` block right after one is compared with
what it prints. A `text` block that begins with a command and an empty line shows what is too dear to be run each time.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recsmith.cli.app import main as recsmith

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.-]+\.(?:yaml|json|csv))\n")
DEAR = re.compile(r"(recsmith .*)\n\n")
SECONDS = re.compile(r"\b\d+(\.\d+)? s\b|(?<=tries, )\d+(\.\d+)? \w+")
ANYTHING = "..."
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"  # which pages of a checkout name
PYTHON = ("import recsmith\n", "from recsmith import ")


@dataclass
class Shown:
    """Something that a page runs: where the text that it should print stands in the page, and what was printed."""

    name: str
    start: int
    end: int
    expected: str
    printed: str


@dataclass
class Page:
    """A page, run from top to bottom in the working folder."""

    text: str
    dear: bool = False
    names: dict[str, Any] = field(default_factory=dict[str, Any])

    def run(self) -> Iterator[Shown]:
        """All that the page shows, one after the other."""
        printed = ""
        for block in BLOCK.finditer(self.text):
            language, body = block[1], block[2]
            if file := FILE.match(body):
                Path(file[1]).write_text(body, "utf-8")
            elif body.startswith("$ recsmith "):
                yield from self._commands(body, block.start(2))
            elif body.startswith(PYTHON):
                printed = _printed(lambda body=body: exec(compile(body, "page", "exec"), self.names))
                continue
            elif language == "text" and (command := DEAR.match(body)):
                if self.dear:
                    start = block.start(2) + command.end()
                    yield Shown(
                        command[1], start, block.end(2), body[command.end() :], _output(shlex.split(command[1]))
                    )
            elif language == "text" and printed:
                yield Shown("python", block.start(2), block.end(2), body, printed)
            printed = ""

    def _commands(self, body: str, start: int) -> Iterator[Shown]:
        """The commands of a block, each with the lines up to the next."""
        for part in re.finditer(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
            words = shlex.split(part[1].replace("\\\n", " "), comments=True)
            if words[0] == "recsmith":
                yield Shown(part[1], start + part.start(2), start + part.end(2), part[2], _output(words))


def _output(words: list[str]) -> str:
    """What a command prints, on both streams."""

    def call() -> None:
        sys.argv = words
        with contextlib.suppress(SystemExit):
            recsmith()

    before = sys.argv
    try:
        return _printed(call)
    finally:
        sys.argv = before


def _printed(call: Any) -> str:
    """What a call prints, without spaces at the ends of lines and empty lines around tables."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        call()
    lines = "\n".join(line.rstrip() for line in told.getvalue().splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n"


def agrees(shown: Shown) -> bool:
    """Whether a page shows what is printed; a page that shows nothing claims nothing."""
    expected = [_plain(line) for line in shown.expected.splitlines() if line.strip()]
    pattern = "".join(r"(?:.*\n)*" if line == ANYTHING else re.escape(line + "\n") for line in expected)
    printed = "".join(_plain(line) + "\n" for line in shown.printed.splitlines() if line.strip())
    return not expected or re.fullmatch(pattern, printed) is not None


def renewed(shown: Shown) -> str:
    """What is printed today, of a page that shows some lines of it those that begin alike, and `...` for the others."""
    expected = shown.expected.splitlines()
    if ANYTHING not in expected:
        return shown.printed
    heads = {line.split()[0] for line in expected if line.strip() and line != ANYTHING}
    lines: list[str] = []
    for line in shown.printed.splitlines():
        goes_on = line.startswith("  ") and bool(lines) and lines[-1] != ANYTHING
        if line.strip() and (goes_on or line.split()[0] in heads):
            lines.append(line)
        elif lines[-1:] != [ANYTHING]:
            lines.append(ANYTHING)
    return "\n".join(lines) + "\n"


def _plain(line: str) -> str:
    """A line without what differs from one run to the next: seconds of planning, and the widths of columns."""
    return re.sub(r"─+", "─", " ".join(SECONDS.sub("#", line.rstrip()).split()))


@contextlib.contextmanager
def page_run(path: Path, *, dear: bool = False) -> Iterator[Iterator[Shown]]:
    """Run a page in a folder of its own, at the width that pages have. dear: also what takes long."""
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("examples").symlink_to(EXAMPLES)
        os.environ["COLUMNS"] = "120"
        try:
            yield Page(path.read_text("utf-8"), dear).run()
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put what is printed today into the pages")
    parser.add_argument("--dear", action="store_true", help="run what takes long, too")
    words = parser.parse_args()
    wrong = 0
    for path in words.pages:
        with page_run(path.resolve(), dear=words.dear) as run:
            found = [shown for shown in run if not agrees(shown)]
        wrong += len(found)
        for shown in found:
            print(f"{path}: {shown.name}\n{shown.printed if not words.write else ''}")
        text = path.read_text("utf-8")
        for shown in reversed(found):
            text = text[: shown.start] + renewed(shown) + text[shown.end :]
        if words.write:
            path.write_text(text, "utf-8")
    sys.exit(bool(wrong) and not words.write)


if __name__ == "__main__":
    main()
