"""What lies beside trained weights, read without torch: the card of an exported model."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from recsmith._types import noun
from recsmith.data import DataSchema
from recsmith.data.columns.rows import vocabularies_in
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, Source, decode, dump_json, read_raw, source_text, spell_out, write_text
from recsmith.training.listed import CardKeys
from recsmith.training.run import RunModel
from recsmith.training.seams.keys import cards_of_systems
from recsmith.training.seams.registry import systems

ONNX_FILE = "model.onnx"  # in place of weights, of an export for other runtimes
StoredTables = Literal["fp32", "fp16", "int8"]
SCHEMA, CARD, MODEL = "recsmith/model/1", "card.json", "model"
TENSORS = ".safetensors"  # how the names of files of weights end
WHOLE = 2**22  # bytes of a tensor up to which all of it goes into a fingerprint
PIECES, PIECE = 16, 2**12  # of a larger one: how many pieces, and bytes of each


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
    None of a model that was trained. tables: how rows are stored, of an export that stores them smaller. fingerprint:
    of the weights, as `fingerprint_of` takes it.
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
    fingerprint: str | None = None


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
    """The card of an exported model, files that belong to it by their paths; CorruptFile of other weights."""
    file = str(folder / CARD)
    raw = read_raw(file, SCHEMA)
    card = decode(ModelCard, raw, file)
    check_weights(folder, raw)
    if "values" not in raw["data"]:  # of a version that kept no transforms
        card = replace(card, data=replace(card.data, values=None))
    model = card.model
    for system in systems():
        model = system.model_in(model, folder)
    return replace(card, model=model, data=vocabularies_in(card.data, folder))


def check_weights(folder: Path, raw: Raw) -> None:
    """CorruptFile where the weights in a folder are not those that its card was written with."""
    told, found = raw.get("fingerprint"), fingerprint_of(folder)
    if None not in (told, found) and told != found:
        raise CorruptFile(
            f"the weights in '{folder}' are not those that its {CARD} was written with, or damaged; copy all files of "
            "one model again, or export it again"
        )


def write_card(folder: Path, raw: Raw) -> None:
    """Write the card of the weights in a folder."""
    write_text(str(folder / CARD), dump_json({**raw, "fingerprint": fingerprint_of(folder)}))


def fingerprint_of(folder: Path) -> str | None:
    """A digest of parts of the weights in a folder, which other weights do not share; None where there are none.

    It takes tensors up to 4 MiB whole, as layers are, and of larger ones 16 pieces of 4 KiB. So it is cheap for every
    model, and tells models apart; a few damaged bytes in a large table it does not notice.
    """
    files = sorted(each for each in folder.glob(f"*{TENSORS}") if each.is_file())
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            length = min(int.from_bytes(file.read(8), "little"), path.stat().st_size)
            digest.update(header := file.read(length))
            for first, count in _pieces(header):
                file.seek(8 + length + first)
                digest.update(file.read(count))
    return digest.hexdigest()[:16] if files else None


def _pieces(header: bytes) -> list[tuple[int, int]]:
    """Where the parts that are read begin, and how many bytes they have; none where the header is damaged."""
    try:
        spans = sorted(tuple(map(int, each["data_offsets"])) for each in json.loads(header).values())
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
    found = list[tuple[int, int]]()
    for first, last in spans:
        step = (last - first - PIECE) // (PIECES - 1)
        small = last - first <= WHOLE
        found += [(first, last - first)] if small else [(first + piece * step, PIECE) for piece in range(PIECES)]
    return found


def keep_files(model: RunModel, folder: Path) -> RunModel:
    """Copy the files without which trained weights mean nothing into their folder; the model that names the copies."""
    for system in systems():
        model = system.keep_files(model, folder)
    return model
