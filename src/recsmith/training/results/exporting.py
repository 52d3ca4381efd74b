"""A trained model in a folder of its own, with all that it needs to score raw rows."""

import shutil
from pathlib import Path

from recsmith.data.columns.rows import RawRowReader
from recsmith.errors import UsageError
from recsmith.files import Source, source_text
from recsmith.files.writable import whole_folder
from recsmith.training.job.card import found_model, read_card


def export_model(run: Source, folder: Source) -> tuple[str, ...]:
    """Write the model of a run into a new folder: weights, card, vocabularies; transforms are in the card.

    It returns the columns that rows must have.

    `load_model` of the folder scores raw rows, and needs nothing beside it.

    Raises:
        UsageError: the run has no trained model, it was trained on ids, or something is in the folder.
        RecSmithError: the disk is full, or refuses.
    """
    model, target = found_model(run), Path(source_text(folder, "the folder of an export"))
    if target.exists():
        raise UsageError(f"cannot write '{target}': something is there; give a new folder, or remove it first")
    names = RawRowReader(read_card(model).data).names  # says why, where there are no raw rows
    with whole_folder(target) as partial:
        shutil.copytree(model, partial, dirs_exist_ok=True)
    return names
