"""Data that a command is given for a trained model, instead of the run's; without torch."""

from os import PathLike
from pathlib import Path
from typing import Any, cast

from recsmith.data.dataset import FORMAT, is_columns
from recsmith.data.parquet.source import says_columns
from recsmith.data.text.source import text_files
from recsmith.files import source_text
from recsmith.training.job.card import CARD, read_card
from recsmith.training.run import load_run
from recsmith.training.run.named import data_of_run


def read_as_run(data: Any, model: Path) -> Any:
    """Data that a command is given for a trained model, in the form in which the command should read it.

    data: a path or a spec; for a run's file, the data that run trains on. model: the model's folder, next to its run if
    it has one. Files that do not describe their columns, such as CSV and other people's Parquet, are read with the
    options of the run's data.train, except its split, if that names files of the same kind. Data of a run gets the
    vocabularies of the model.
    """
    given, data, file = data, data_of_run(data), model.parent / "run.json"
    if not isinstance(data, str | PathLike):
        return data if isinstance(given, dict) else with_own_vocabularies(data, model)
    if not file.exists():
        return data
    text = source_text(cast(Any, data), "data")
    train: Any = load_run(file).data.train
    if not isinstance(train, dict) or not _is_like(text, cast(dict[str, Any], train)):
        return data
    return with_own_vocabularies(
        {**{key: value for key, value in train.items() if not key.startswith("split")}, "paths": [text]}, model
    )


def with_own_vocabularies(spec: Any, model: Path) -> Any:
    """A run's data with the vocabularies stored with a model, which alone map values to the model's rows."""
    if not isinstance(spec, dict) or not (named := cast(dict[str, Any], spec).get("features")):
        return cast(Any, spec)
    raw = read_card(model).data.raw if (model / CARD).exists() else None
    own = {each["name"]: each["vocabulary"] for each in (raw or {"features": ()})["features"] if "vocabulary" in each}
    return {**spec, "features": [{**each, **({"vocabulary": own[each["name"]]} if each["name"] in own else {})}
                                 for each in named]}  # fmt: skip


def _is_like(path: str, train: dict[str, Any]) -> bool:
    """Whether files at a path do not describe their columns, and are of the same kind as those of data.train."""
    if train.get(FORMAT) == "parquet":
        return bool(train.get("features")) and is_columns(path) and not says_columns((path,))
    if train.get(FORMAT) != "text" or not (files := text_files(path)):
        return False
    known = {_ending(each) for named in train["paths"] for each in text_files(named) or [Path(named)]}
    return _ending(files[0]) in known or known == {""}  # the kind of a missing folder's files is unknown


def _ending(path: Any) -> str:
    return Path(path.name.removesuffix(".gz")).suffix
