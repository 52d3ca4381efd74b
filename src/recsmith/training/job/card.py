"""What lies beside trained weights, read without torch: the card of an exported model."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from recsmith._types import noun
from recsmith.data import DataSchema
from recsmith.data.columns.rows import vocabularies_in
from recsmith.errors import UsageError
from recsmith.files import Raw, Source, decode, read_raw, source_text, spell_out
from recsmith.training.listed import CardKeys
from recsmith.training.run import RunModel
from recsmith.training.seams.keys import cards_of_systems
from recsmith.training.seams.registry import systems

ONNX_FILE = "model.onnx"  # in place of weights, of an export for other runtimes
StoredTables = Literal["fp32", "fp16", "int8"]
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
@cards_of_systems()
class ModelCard(CardKeys):
    """What card.json says: the model, the data it reads, the seed, and the step and scores that it was exported at.

    systems: what those of other packages say, by name. trained_on: digest of the data. origin: what a copy was made of;
    None of a model that was trained. tables: how rows are stored, of an export that stores them smaller.
    """

    model: RunModel
    data: DataSchema
    seed: int
    step: int | None = None
    test: dict[str, Any] | None = None
    systems: dict[str, dict[str, Any]] | None = None
    trained_on: str | None = None
    origin: CopyOrigin | None = None
    tables: StoredTables = "fp32"


def found_model(folder: Source) -> Path:
    """The folder of a model: that of a run's, or one that holds a model itself, such as a copy; or UsageError."""
    path = Path(source_text(folder, "the folder of a model"))
    found = next((each for each in (path / MODEL, path) if (each / CARD).exists()), None)
    if found is None:
        raise UsageError(f"'{path}' holds no trained model; give the output folder of a run that is complete")
    return found


def trained_model(folder: Source) -> Path:
    """The folder of a model whose weights are as they were trained; UsageError where an export stores them smaller."""
    found = found_model(folder)
    check_as_trained(read_card(found), str(found))
    return found


def check_as_trained(card: ModelCard, folder: str) -> None:
    """UsageError of an export that stores rows of tables smaller, which only `load_model` reads."""
    if card.tables != "fp32":
        raise UsageError(
            f"'{folder}' has tables in {card.tables}, as `recsmith export` stored them, which serve and are not "
            "trained on; give the run that it was exported from"
        )


def described(model: RunModel, schema: DataSchema, seed: int) -> Raw:
    """The lines of a card on a model and its data, with all their fields: another default is another model."""
    return {"schema": SCHEMA, "model": spell_out(model), "data": spell_out(schema), "seed": seed}


def read_card(folder: Path) -> ModelCard:
    """The card of an exported model, files that belong to it by their paths; CorruptFile where it is none."""
    file = str(folder / CARD)
    raw = read_raw(file, SCHEMA)
    card = decode(ModelCard, raw, file)
    if "values" not in raw["data"]:  # of a version that kept no transforms
        card = replace(card, data=replace(card.data, values=None))
    model = card.model
    for system in systems():
        model = system.model_in(model, folder)
    return replace(card, model=model, data=vocabularies_in(card.data, folder))


def keep_files(model: RunModel, folder: Path) -> RunModel:
    """Copy the files without which trained weights mean nothing into their folder; the model that names the copies."""
    for system in systems():
        model = system.keep_files(model, folder)
    return model
