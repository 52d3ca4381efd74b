"""The id maps of a run, kept with its weights, which are meaningless with other maps. Without torch."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.embeddings import load_maps, save_maps
from recsmith.errors import UsageError


def with_maps_in(model: Any, folder: Path) -> Any:
    """The model whose rules name the maps in a folder. model: of a card, whose rules name files in its folder."""
    return _with_maps(model, [str(folder / name) for name in _named(model)])


def keep_maps(model: Any, folder: Path) -> Any:
    """Copy the maps that a model's rules name into a folder; returns the model with the copies' names there."""
    kept = kept_names(model)
    for source, name in dict(zip(_named(model), kept, strict=True)).items():
        save_maps(load_maps(source), folder / name)
    return _with_maps(model, kept)


def check_maps(model: Any, folder: Path) -> None:
    """Raise UsageError if the maps that a model's rules name differ from those kept in a folder."""
    for source, name in dict(zip(_named(model), kept_names(model), strict=True)).items():
        kept, now = load_maps(folder / name), load_maps(source)
        if kept.keys() != now.keys() or not all(np.array_equal(kept[t].numbers, now[t].numbers) for t in kept):
            raise UsageError(
                f"'{source}' has changed since this run began, and its weights mean nothing under other maps; "
                f"put '{folder / name}' back there, or give another output"
            )


def kept_names(model: Any) -> list[str]:
    """File names, in the folder of what was trained, of the maps of each rule that has maps; one per source file."""
    numbers = [number for number, rule in enumerate(model.compression) if rule.maps is not None]
    first = dict(zip(reversed(_named(model)), reversed(numbers), strict=True))
    return [f"maps-{first[source]}.safetensors" for source in _named(model)]


def _named(model: Any) -> list[str]:
    """The map files that rules name, in the order of rules."""
    return [rule.maps for rule in model.compression if rule.maps is not None]


def _with_maps(model: Any, files: Sequence[str]) -> Any:
    """The model whose rules name these map files, in the order of rules."""
    left = iter(files)
    rules = (rule if rule.maps is None else replace(rule, maps=next(left)) for rule in model.compression)
    return replace(model, compression=tuple(rules))
