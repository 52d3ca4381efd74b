"""Exports a trained model to its own folder, with everything that it needs to score raw rows."""

import shutil
from pathlib import Path
from typing import Literal, cast

from recsmith.data.columns.rows import RawRowReader
from recsmith.errors import UsageError
from recsmith.files import Raw, Source, read_json, source_text
from recsmith.files.writable import whole_folder
from recsmith.training.job.card import (
    CARD,
    ONNX_FILE,
    StoredTables,
    read_card,
    trained_model,
    weights_digest,
    write_card,
)


def export_model(
    run: Source, folder: Source, *, tables: StoredTables = "fp32", runtime: Literal["torch", "onnx"] = "torch"
) -> tuple[str, ...]:
    """Write the model of a run into a new folder, and return the columns that rows must have.

    The folder has weights, card and vocabularies; transforms are in the card. `load_model`, or `load_onnx`, of the
    folder scores raw rows and needs nothing else.

    Args:
        run: folder of the run.
        folder: the new folder.
        tables: fp16, or int8 with a scale and a bias for each row, which take half and a quarter of the bytes.
        runtime: onnx writes an ONNX file instead of weights (onnx_export.py).

    Raises:
        UsageError: the run has no trained model, it was trained on ids, its tables cannot be stored in this type, ONNX
            lacks an operator of the model, or the folder exists.
        MissingExtra: packages for ONNX are not installed.
        RecSmithError: the disk is full, or refuses.
    """
    model, target = trained_model(run), Path(source_text(folder, "the folder of an export"))
    if target.exists():
        raise UsageError(f"cannot write '{target}': something is there; give a new folder, or remove it first")
    card = read_card(model)
    names = RawRowReader(card.data).names  # raises the reason if there are no raw rows
    if runtime == "onnx" and tables != "fp32":
        raise UsageError(f"an export for ONNX has tables in fp32, not {tables}; leave --tables out")
    if tables == "fp32" and runtime == "torch":
        weights_digest(model)
        with whole_folder(target) as partial:
            shutil.copytree(model, partial, dirs_exist_ok=True)
        return names

    from recsmith.training.job.export import WEIGHTS

    beside = shutil.ignore_patterns(WEIGHTS)
    if runtime == "onnx":
        from recsmith.training.results.onnx_export import export_onnx
        from recsmith.training.results.serving import load_model

        with whole_folder(target) as partial:
            export_onnx(load_model(model), partial / ONNX_FILE)
            shutil.copytree(model, partial, dirs_exist_ok=True, ignore=beside)
            write_card(partial, cast(Raw, read_json(str(partial / CARD))))
        return names

    from recsmith.training.results.quantised_tables import check_quantised, write_quantised

    check_quantised(card)
    weights_digest(model)
    with whole_folder(target) as partial:
        shutil.copytree(model, partial, dirs_exist_ok=True, ignore=beside)
        write_quantised(model, partial, "fp16" if tables == "fp16" else "int8")
        raw = cast(Raw, read_json(str(partial / CARD)))
        write_card(partial, {**raw, "tables": tables})
    return names
