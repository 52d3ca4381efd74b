"""What lies beside trained weights, read without torch: the card of an exported model."""

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from recsmith._types import noun
from recsmith.data import DataSchema
from recsmith.data.columns.rows import vocabularies_in
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, Source, decode, dump_json, read_json, read_raw, source_text, spell_out, write_text
from recsmith.training.listed import CardKeys
from recsmith.training.run import RunModel
from recsmith.training.seams.keys import cards_of_systems
from recsmith.training.seams.registry import systems

ONNX_FILE = "model.onnx"  # in place of weights, of an export for other runtimes
StoredTables = Literal["fp32", "fp16", "int8"]
BlockDigest = tuple[str, int, str]  # a file, where a block of it begins, SHA-256
SCHEMA, CARD, MODEL = "recsmith/model/1", "card.json", "model"
TENSORS = ".safetensors"  # how the names of files of weights end
BLOCK = 2**24  # bytes of a file of weights that have a digest of their own, so that threads and ranks share the work
THREADS = 8  # that read and digest blocks of a file at once


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
    of the weights, as `weights_digest` takes it; None where there are none, as beside a file of ONNX.
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
    """The card of an exported model, files that belong to it by their paths; who loads the weights checks them."""
    file = str(folder / CARD)
    raw = read_raw(file, SCHEMA)
    card = decode(ModelCard, raw, file)
    if "values" not in raw["data"]:  # of a version that kept no transforms
        card = replace(card, data=replace(card.data, values=None))
    model = card.model
    for system in systems():
        model = system.model_in(model, folder)
    return replace(card, model=model, data=vocabularies_in(card.data, folder))


def write_card(folder: Path, raw: Raw, blocks: Iterable[BlockDigest] | None = None) -> None:
    """Write the card of the weights in a folder. blocks: digests of them; None: they are taken here."""
    blocks = block_digests(folder) if blocks is None else list(blocks)
    found = fingerprint_of(blocks) if blocks else None
    write_text(str(folder / CARD), dump_json({**raw, "fingerprint": found}))


def weights_digest(folder: Path) -> str:
    """The digest of all weights in a folder; CorruptFile where its card was written with others."""
    digest = fingerprint_of(block_digests(folder))
    check_weights(folder, digest)
    return digest


def check_weights(folder: Path, digest: str) -> None:
    """CorruptFile where weights with a digest are not those that the card beside them was written with."""
    told = cast(Raw, read_json(str(folder / CARD))).get("fingerprint")  # versions before had none
    if told not in (None, digest):
        raise CorruptFile(
            f"the weights in '{folder}' are not those that its {CARD} was written with, or damaged; copy all files of "
            "one model again, or export it again"
        )


def block_digests(folder: Path, part: int = 0, parts: int = 1) -> list[BlockDigest]:
    """Of the weights in a folder, digests of each block, or of one of several equal parts of these."""
    files = sorted(each for each in folder.glob(f"*{TENSORS}") if each.is_file())
    blocks = [(file, first) for file in files for first in range(0, file.stat().st_size, BLOCK)]
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(_block_digest, blocks[part::parts]))


def _block_digest(block: tuple[Path, int]) -> BlockDigest:
    path, first = block
    with path.open("rb") as file:
        return path.name, first, hashlib.sha256(os.pread(file.fileno(), BLOCK, first)).hexdigest()


def fingerprint_of(blocks: Iterable[BlockDigest]) -> str:
    """The digest of weights, of those of all their blocks."""
    return hashlib.sha256(repr(sorted(blocks)).encode()).hexdigest()[:16]


def keep_files(model: RunModel, folder: Path) -> RunModel:
    """Copy the files without which trained weights mean nothing into their folder; the model that names the copies."""
    for system in systems():
        model = system.keep_files(model, folder)
    return model
