"""A folder of measurements: append-only, safe against kill -9 and full disks, written by one process at a time.

    about.json               what is measured here; written first, never changed
    journal.jsonl            rows that no part holds yet
    part-A-B.parquet         rows A to B, folded out of the journal

A row is a visit of a sample, or an exchange. Every PART rows the journal becomes a part, written beside and renamed. A
journal that was folded and not yet removed is known by its positions. What is interrupted is at most the row that runs.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import write_text
from recsmith.measuring.columns import SCHEMA, Kind
from recsmith.measuring.held import held
from recsmith.measuring.journal import Journal, Row, read_journal

PART = 5000  # rows of a part
NOTHING = -1


@noun
class About:
    """What a folder holds; a run that adds to it must say the same."""

    kind: Kind
    hardware: str
    seed: int
    scale: str = ""
    optimizers: tuple[str, ...] = ()
    data_types: tuple[str, ...] = ()
    ranks: int = 1

    def __str__(self) -> str:
        """In words."""
        words = [f"{self.kind} measurements of {self.hardware}", f"seed {self.seed}"]
        words += [f"{self.ranks} ranks"] if self.kind == "comm" else [f"scale {self.scale}"]
        return ", ".join([*words, *self.optimizers, *self.data_types])


class Folder:
    """An open folder: `begin` a position, `add` its row, `fold` now and then.

    position: of the next row. pending: rows in the journal. interrupted: whether the next row was begun before, by a
    run that did not live to finish it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reread()

    def reread(self) -> None:
        """Take in what is there, which another process may have written on this one's behalf."""
        lines, folded = read_journal(self.path), last_folded(self.path)
        self._journal = Journal(self.path)
        self.pending = len(unfolded(self.path))
        self.position = max([folded, *(row["position"] for row in lines if "position" in row)]) + 1
        self.interrupted = [row["begin"] for row in lines if "begin" in row][-1:] == [self.position]

    def begin(self, position: int) -> None:
        """Note what is measured next, or NOTHING."""
        self._journal.write({"begin": position})

    def add(self, row: Row) -> None:
        """Keep the row of the next position."""
        self._journal.write(row)
        self.position, self.pending, self.interrupted = row["position"] + 1, self.pending + 1, False

    def fold(self) -> Path | None:
        """Write the journal's rows as a part and remove the journal; None if there are none."""
        from recsmith.measuring.parts import write_part

        rows = unfolded(self.path)
        if not rows:
            return None
        target = self.path / f"part-{rows[0]['position']:09d}-{rows[-1]['position']:09d}.parquet"
        write_part(target, load_about(self.path).kind, rows)
        self._journal.clear()
        self.pending = 0
        return target


@contextmanager
def open_folder(path: Path, about: About) -> Generator[Folder]:
    """The folder for writing, made if need be.

    Raises:
        UsageError: it holds something else, or another process writes to it.
        CorruptFile: its journal is damaged.
    """
    with held(path):
        _settle(path, about)
        yield Folder(path)


def _settle(path: Path, about: About) -> None:
    """Write about.json into an empty folder, or check that it says the same."""
    if (path / "about.json").exists():
        found = load_about(path)
        if found != about:
            raise UsageError(f"'{path}' holds {found}; to add {about}, give another folder")
        return
    strange = sorted(entry.name for entry in path.iterdir())
    if strange:
        raise UsageError(f"'{path}' holds '{strange[0]}' and no about.json; give a new or an empty folder")
    fields = {name: getattr(about, name) for name in About.__dataclass_fields__}
    write_text(str(path / "about.json"), json.dumps({"schema": SCHEMA, **fields}, indent=2) + "\n")


def load_about(path: Path) -> About:
    """What a folder holds."""
    file = path / "about.json"
    if not file.is_file():
        raise UsageError(f"'{path}' holds no measurements (no about.json); `recsmith measure compute` makes them")
    try:
        raw: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if raw["schema"] != SCHEMA:
            raise CorruptFile(f"'{file}' has a schema '{raw['schema']}'; this version reads `{SCHEMA}`")
        return About(
            kind=raw["kind"], hardware=raw["hardware"], seed=raw["seed"], scale=raw["scale"],
            optimizers=tuple(raw["optimizers"]), data_types=tuple(raw["data_types"]), ranks=raw["ranks"],
        )  # fmt: skip
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise CorruptFile(f"'{file}' is damaged ({error}); move the folder away and measure again") from None


def parts(path: Path) -> list[Path]:
    """Files of folded rows, in order of positions."""
    return sorted(path.glob("part-*.parquet"))


def last_folded(path: Path) -> int:
    """Position of the last row in a part, as file names say; -1 if there is none."""
    last = -1
    for part in parts(path):
        number = part.stem.rpartition("-")[2]
        if not number.isdigit():
            raise CorruptFile(f"'{part}' is not named part-<first>-<last>.parquet; move it away")
        last = max(last, int(number))
    return last


def unfolded(path: Path) -> list[Row]:
    """Rows of the journal that no part holds, in order."""
    folded = last_folded(path)
    return [row for row in read_journal(path) if row.get("position", -1) > folded]
