"""Results of a training in a comparison, stored in its folder, so that repeating the comparison reuses them."""

import json
from pathlib import Path
from typing import TypeVar

from recsmith.errors import CorruptFile
from recsmith.files import Raw, decode, dump_json, encode, read_json, write_text
from recsmith.training.run import Run, run_to_raw

FILE, REACHED = "measured.json", "measured"
Reached = TypeVar("Reached")


def told(run: Run) -> Raw:
    """The settings of a run after a round trip through JSON, without its folder, which may be moved."""
    return {"run": json.loads(json.dumps({key: value for key, value in run_to_raw(run).items() if key != "output"}))}


def reached_before(folder: Path, settings: Raw, noun: type[Reached]) -> Reached | None:
    """The stored results of a training with these settings in this folder; None if there are none.

    Raises:
        CorruptFile: the stored results have other settings, or are damaged.
    """
    file = folder / FILE
    if not file.exists():
        return None
    raw = read_json(str(file))
    if not isinstance(raw, dict) or {key: raw.get(key) for key in settings} != settings:
        raise CorruptFile(f"'{file}' was measured with other settings; give another folder, or remove this one")
    return decode(noun, raw.get(REACHED), str(file))


def keep_reached(folder: Path, settings: Raw, reached: object) -> None:
    """Store the results of a training. settings: after a round trip through JSON."""
    write_text(str(folder / FILE), dump_json({**settings, REACHED: encode(reached)}))
