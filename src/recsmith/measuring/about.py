"""What a folder of measurements holds, as its file about.json says: kind, hardware, seed, scale and ranks."""

import json
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import write_text
from recsmith.measuring.columns import SCHEMA, MeasurementKind

ABOUT_NAME = "about.json"


@noun
class About:
    """What a folder holds; a run that adds to the folder must say the same.

    scale, optimizers, data_types: of compute measurements. ranks: of comm measurements.
    """

    kind: MeasurementKind
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


def load_about(path: Path) -> About:
    """What a folder holds.

    Raises:
        UsageError: the folder has no about.json.
        CorruptFile: about.json is damaged, or of another schema.
    """
    file = path / ABOUT_NAME
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


def write_about(path: Path, about: About) -> None:
    """Write about.json into an empty folder, or check that the one that is there says the same.

    Raises:
        UsageError: the folder holds other measurements, or other files.
        CorruptFile: its about.json is damaged.
    """
    if (path / ABOUT_NAME).exists():
        found = load_about(path)
        if found != about:
            raise UsageError(f"'{path}' holds {found}; to add {about}, give another folder")
        return
    strange = sorted(entry.name for entry in path.iterdir())
    if strange:
        raise UsageError(f"'{path}' holds '{strange[0]}' and no about.json; give a new or an empty folder")
    fields = {name: getattr(about, name) for name in About.__dataclass_fields__}
    write_text(str(path / ABOUT_NAME), json.dumps({"schema": SCHEMA, **fields}, indent=2) + "\n")
