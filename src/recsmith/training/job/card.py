"""The card of an exported model, next to its weights; read without torch."""

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

ONNX_FILE = "model.onnx"  # file in place of weights, in an export for other runtimes
StoredTables = Literal["fp32", "fp16", "int8"]
BlockDigest = tuple[str, int, str]  # (file name, offset of a block, SHA-256 of the block)
SCHEMA, CARD, MODEL = "recsmith/model/1", "card.json", "model"
TENSORS = ".safetensors"  # suffix of weight files
BLOCK = 2**24  # bytes of a weight file that are digested together, so that threads and ranks share the work
THREADS = 8  # threads that read and digest blocks of a file at once


@noun
class CopyOrigin:
    """What a copy of a model was made from.

    model: folder of the original model, as it was given. weights: digest of its weights. data, digest: the data that
    the copy was made with, as it was given, and its digest.
    """

    model: str
    weights: str
    data: Any
    digest: str


@noun
@cards_of_systems()
class ModelCard(CardKeys):
    """The content of card.json: the model, the data it reads, the seed, and the step and scores at its export.

    systems: what systems of other packages wrote, by name. trained_on: digest of the data. origin: what a copy was made
    from; None for a trained model. tables: how rows are stored, in an export that stores them smaller. fingerprint:
    digest of the weights, as `weights_digest` computes it; None without weights, as in an ONNX export.
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
    """The folder of a model, given a run's folder or the model's own, such as a copy's; UsageError if there is none."""
    path = Path(source_text(folder, "the folder of a model"))
    found = next((each for each in (path / MODEL, path) if (each / CARD).exists()), None)
    if found is None:
        raise UsageError(f"'{path}' holds no trained model; give the output folder of a run that is complete")
    return found


def trained_model(folder: Source) -> Path:
    """The folder of a model with its weights as trained; UsageError for an export that stores them smaller."""
    found = found_model(folder)
    check_as_trained(read_card(found), str(found))
    return found


def check_as_trained(card: ModelCard, folder: str) -> None:
    """UsageError for an export that stores table rows smaller, which only `load_model` reads."""
    if card.tables != "fp32":
        raise UsageError(
            f"'{folder}' has tables in {card.tables}, as `recsmith export` stored them, which serve and are not "
            "trained on; give the run that it was exported from"
        )


def described(model: RunModel, schema: DataSchema, seed: int) -> Raw:
    """The lines of a card about a model and its data, with every field written out: later defaults cannot change it."""
    return {"schema": SCHEMA, "model": spell_out(model), "data": spell_out(schema), "seed": seed}


def read_card(folder: Path) -> ModelCard:
    """The card of an exported model, with paths to its files; whoever loads the weights checks them."""
    file = str(folder / CARD)
    raw = read_raw(file, SCHEMA)
    card = decode(ModelCard, raw, file)
    if "values" not in raw["data"]:  # from a version that kept no transforms
        card = replace(card, data=replace(card.data, values=None))
    model = card.model
    for system in systems():
        model = system.model_in(model, folder)
    return replace(card, model=model, data=vocabularies_in(card.data, folder))


def write_card(folder: Path, raw: Raw, blocks: Iterable[BlockDigest] | None = None) -> None:
    """Write the card of the weights in a folder. blocks: their digests; None: they are computed here."""
    blocks = block_digests(folder) if blocks is None else list(blocks)
    found = fingerprint_of(blocks) if blocks else None
    write_text(str(folder / CARD), dump_json({**raw, "fingerprint": found}))


def weights_digest(folder: Path) -> str:
    """The digest of all weights in a folder; CorruptFile if it does not match the card."""
    digest = fingerprint_of(block_digests(folder))
    check_weights(folder, digest)
    return digest


def check_weights(folder: Path, digest: str) -> None:
    """CorruptFile if the digest of the weights is not the one in the card of their folder."""
    stated = cast(Raw, read_json(str(folder / CARD))).get("fingerprint")  # earlier versions had none
    if stated not in (None, digest):
        raise CorruptFile(
            f"the weights in '{folder}' are not those that its {CARD} was written with, or damaged; copy all files of "
            "one model again, or export it again"
        )


def block_digests(folder: Path, part: int = 0, parts: int = 1) -> list[BlockDigest]:
    """Digests of the blocks of the weights in a folder: of all blocks, or of every `parts`-th, beginning at `part`."""
    files = sorted(each for each in folder.glob(f"*{TENSORS}") if each.is_file())
    blocks = [(file, first) for file in files for first in range(0, file.stat().st_size, BLOCK)]
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(_block_digest, blocks[part::parts]))


def _block_digest(block: tuple[Path, int]) -> BlockDigest:
    path, first = block
    with path.open("rb") as file:
        return path.name, first, hashlib.sha256(os.pread(file.fileno(), BLOCK, first)).hexdigest()


def fingerprint_of(blocks: Iterable[BlockDigest]) -> str:
    """The digest of weights, computed from the digests of all blocks."""
    return hashlib.sha256(repr(sorted(blocks)).encode()).hexdigest()[:16]


def keep_files(model: RunModel, folder: Path) -> RunModel:
    """Copy files that a trained model needs into its folder; returns the model with the copies' paths."""
    for system in systems():
        model = system.keep_files(model, folder)
    return model
