"""What lies beside trained weights, read without torch: the card of an exported model, and the id maps of a run.

Weights mean nothing under other maps, so those of a run are kept with what was trained.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import noun
from recsmith.data import DataSchema
from recsmith.embeddings import load_maps, save_maps
from recsmith.errors import UsageError
from recsmith.files import Raw, Source, decode, read_raw, source_text, spell_out
from recsmith.training.run import RunModel
from recsmith.training.seams.system import cards_of_systems

SCHEMA, CARD, MODEL = "recsmith/model/1", "card.json", "model"


@noun
class CopyOrigin:
    """What a copy of a model was made of.

    model: the folder of that model, as it was given. weights: digest of its weights. data, digest: what the copy was
    made by, as it was given, and a digest of that.
    """

    model: str
    weights: str
    data: Any
    digest: str


@noun
@cards_of_systems("columns", "refit", "sparse")
class ModelCard:
    """What card.json says: the model, the data it reads, the seed, and the step and scores that it was exported at.

    columns: of pooled embeddings that the model sees; None: all. systems: what those of other packages say, by name.
    refit: how its layers were fitted to other data. sparse: what became of its layers, where it is a sparse copy.
    trained_on: digest of the data. origin: what a copy was made of; None of a model that was trained.
    """

    model: RunModel
    data: DataSchema
    seed: int
    step: int | None = None
    test: dict[str, Any] | None = None
    columns: Any = None
    systems: dict[str, dict[str, Any]] | None = None
    refit: Any = None
    sparse: Any = None
    trained_on: str | None = None
    origin: CopyOrigin | None = None


def found_model(folder: Source) -> Path:
    """The folder of a model: that of a run's, or one that holds a model itself, such as a copy; or UsageError."""
    path = Path(source_text(folder, "the folder of a model"))
    found = next((each for each in (path / MODEL, path) if (each / CARD).exists()), None)
    if found is None:
        raise UsageError(f"'{path}' holds no trained model; give the output folder of a run that is complete")
    return found


def described(model: RunModel, schema: DataSchema, seed: int) -> Raw:
    """The lines of a card on a model and its data, with all their fields: another default is another model."""
    return {"schema": SCHEMA, "model": spell_out(model), "data": spell_out(schema), "seed": seed}


def read_card(folder: Path) -> ModelCard:
    """The card of an exported model, its maps by their paths; CorruptFile where it is none."""
    file = str(folder / CARD)
    raw = read_raw(file, SCHEMA)
    card = decode(ModelCard, raw, file)
    if "values" not in raw["data"]:  # of a version that kept no transforms
        card = replace(card, data=replace(card.data, values=None))
    return replace(card, model=_with_maps(card.model, [str(folder / name) for name in _named(card.model)]))


def keep_maps(model: RunModel, folder: Path) -> RunModel:
    """Copy the maps that a model's rules name into a folder; the model that names the copies, by their names there."""
    kept = kept_names(model)
    for source, name in dict(zip(_named(model), kept, strict=True)).items():
        save_maps(load_maps(source), folder / name)
    return _with_maps(model, kept)


def check_maps(model: RunModel, folder: Path) -> None:
    """UsageError where the maps that a model's rules name are no longer those that were kept in a folder."""
    for source, name in dict(zip(_named(model), kept_names(model), strict=True)).items():
        kept, now = load_maps(folder / name), load_maps(source)
        if kept.keys() != now.keys() or not all(np.array_equal(kept[t].numbers, now[t].numbers) for t in kept):
            raise UsageError(
                f"'{source}' has changed since this run began, and its weights mean nothing under other maps; "
                f"put '{folder / name}' back there, or give another output"
            )


def kept_names(model: RunModel) -> list[str]:
    """The file in the folder of what was trained that keeps the maps of each rule which has some: one for each file."""
    numbers = [number for number, rule in enumerate(model.compression) if rule.maps is not None]
    first = dict(zip(reversed(_named(model)), reversed(numbers), strict=True))
    return [f"maps-{first[source]}.safetensors" for source in _named(model)]


def _named(model: RunModel) -> list[str]:
    """The files of maps that rules name, in their order."""
    return [rule.maps for rule in model.compression if rule.maps is not None]


def _with_maps(model: RunModel, files: Sequence[str]) -> RunModel:
    """The model whose rules name these files, in their order."""
    left = iter(files)
    rules = (rule if rule.maps is None else replace(rule, maps=next(left)) for rule in model.compression)
    return replace(model, compression=tuple(rules))
