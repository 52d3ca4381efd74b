"""Data that a trained model is asked about, beside its run; without torch."""

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
    """Data that a command is given beside a trained model, as the command is to read it.

    data: a path or a spec; of a run's file, what that run trains on. model: a folder in that of its run, where it has
    one. Files that do not say what their columns are, as CSV and Parquet of others, are read by the options of the
    run's data.train, without its split, where that names files of the same kind. What a run names has the vocabularies
    of the model.
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
    """What a run names as data, with the vocabularies that a model keeps: by no others it knows a value's row."""
    if not isinstance(spec, dict) or not (named := cast(dict[str, Any], spec).get("features")):
        return cast(Any, spec)
    raw = read_card(model).data.raw if (model / CARD).exists() else None
    own = {each["name"]: each["vocabulary"] for each in (raw or {"features": ()})["features"] if "vocabulary" in each}
    return {**spec, "features": [{**each, **({"vocabulary": own[each["name"]]} if each["name"] in own else {})}
                                 for each in named]}  # fmt: skip


def _is_like(path: str, train: dict[str, Any]) -> bool:
    """Whether files at a path say nothing of their columns, and those of data.train are of the same kind."""
    if train.get(FORMAT) == "parquet":
        return bool(train.get("features")) and is_columns(path) and not says_columns((path,))
    if train.get(FORMAT) != "text" or not (files := text_files(path)):
        return False
    known = {_ending(each) for named in train["paths"] for each in text_files(named) or [Path(named)]}
    return _ending(files[0]) in known or known == {""}  # of a folder that is gone nobody knows


def _ending(path: Any) -> str:
    return Path(path.name.removesuffix(".gz")).suffix
