"""The description of a folder of measurements (its file about.json), and the folders of the repository (samples/)."""

import json
import os
from pathlib import Path
from typing import cast

from recsmith._types import noun
from recsmith.clusters.cluster import LARGEST_WORLD
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, check_schema, decode, is_regular_file, read_json, write_text
from recsmith.measuring.columns import SCHEMA, MeasurementKind

ABOUT_NAME = "about.json"
SEEDS = 2**31  # limit of seeds: the number of a case becomes seed * 2^32 + number, which must fit into 64 bits
LONGEST_NAME = 200  # characters


@noun
class About:
    """The description of a folder; a run that adds to the folder must have the same one.

    scale, optimizers, data_types: of compute measurements. planned: the cost model under which the tasks of the cases
    were planned; empty if cases are random, as in folders without this field. ranks: of comm measurements.
    """

    kind: MeasurementKind
    hardware: str
    seed: int
    scale: str = ""
    optimizers: tuple[str, ...] = ()
    data_types: tuple[str, ...] = ()
    ranks: int = 1
    planned: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < SEEDS:
            raise UsageError(f"seed is {self.seed}; it must be at least 0 and below 2^31")
        if not 1 <= self.ranks <= LARGEST_WORLD:
            raise UsageError(f"ranks is {self.ranks}; it must be at least 1 and at most {LARGEST_WORLD:,}")
        for name in (self.hardware, self.scale, self.planned, *self.optimizers, *self.data_types):
            if len(name) > LONGEST_NAME:
                raise UsageError(f"'{name[:20]}…' has {len(name):,} characters; at most {LONGEST_NAME} are read")

    def __str__(self) -> str:
        """The folder as messages describe it."""
        parts = [f"{self.kind} measurements of {self.hardware}", f"seed {self.seed}"]
        parts += [f"{self.ranks} ranks"] if self.kind == "comm" else [f"scale {self.scale}"]
        parts += [f"planned under {self.planned}"] if self.planned else []
        return ", ".join([*parts, *self.optimizers, *self.data_types])


def load_about(path: Path) -> About:
    """The description of a folder.

    Raises:
        UsageError: the folder has no about.json.
        CorruptFile: about.json is damaged, or of another schema.
    """
    file = path / ABOUT_NAME
    if not is_regular_file(file):
        raise UsageError(f"'{path}' holds no measurements (no about.json); `recsmith measure compute` makes them")
    source = str(file)
    try:
        return decode(About, check_schema(cast(Raw, read_json(source)), SCHEMA, source), source)
    except CorruptFile as error:
        raise CorruptFile(f"{error}; move the folder away and measure again") from None


def write_about(path: Path, about: About) -> None:
    """Write about.json into an empty folder, or check that the existing one says the same.

    Raises:
        UsageError: the folder holds other measurements, or other files.
        CorruptFile: its about.json is damaged.
    """
    if os.path.lexists(path / ABOUT_NAME):
        found = load_about(path)
        if found != about:
            raise UsageError(f"'{path}' holds {found}; to add {about}, give another folder")
        return
    strange = sorted(entry.name for entry in path.iterdir())
    if strange:
        raise UsageError(f"'{path}' holds '{strange[0]}' and no about.json; give a new or an empty folder")
    fields = {name: getattr(about, name) for name in About.__dataclass_fields__}
    write_text(str(path / ABOUT_NAME), json.dumps({"schema": SCHEMA, **fields}, indent=2) + "\n")


PREFIX = "shipped:"  # prefix of names that mean a folder of the repository
SAMPLES = Path(__file__).parents[3] / "samples"  # only in a checkout that is installed with --editable, as `make` does


def locate(folder: str) -> Path:
    """The folder of a path, or of 'shipped:<name>' in the repository; UsageError if the repository has none."""
    if not folder.startswith(PREFIX):
        return Path(folder)
    name = folder.removeprefix(PREFIX)
    there = sorted(entry.name for entry in SAMPLES.iterdir() if entry.is_dir()) if SAMPLES.is_dir() else []
    if not there:
        raise UsageError(
            f"'{folder}' names measurements that stand in RecSmith's repository and not in this installation; give "
            f"their folder in a checkout, samples/{name}, or install the checkout with pip install --editable"
        )
    if name not in there:
        raise UsageError(f"no measurements '{name}' ship with this version; there are {', '.join(there)}")
    return SAMPLES / name


def folders_in(folder: Path) -> list[Path]:
    """The folders of measurements inside a folder, by name; if it has none inside, the folder itself."""
    inner = sorted(each.parent for each in folder.glob(f"*/{ABOUT_NAME}"))
    return [folder] if is_regular_file(folder / ABOUT_NAME) or not inner else inner
