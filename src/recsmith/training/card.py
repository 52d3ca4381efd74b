"""What lies beside trained weights, read without torch: the card of an exported model, and the id maps of a run.

Weights mean nothing under other maps, so those of a run are kept with what was trained.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from recsmith.embeddings import load_maps, save_maps
from recsmith.errors import UsageError
from recsmith.files import Raw, decode, read_raw
from recsmith.training.run import RunModel

SCHEMA, CARD = "recsmith/model/1", "card.json"


def read_card(folder: Path) -> Raw:
    """The card of an exported model; CorruptFile where it is none."""
    return read_raw(str(folder / CARD), SCHEMA)


def exported_model(card: Raw, folder: Path) -> RunModel:
    """The model of the card of an exported folder, its maps by their paths."""
    model = decode(RunModel, card["model"], str(folder))
    rules = (rule if rule.maps is None else replace(rule, maps=str(folder / rule.maps)) for rule in model.compression)
    return replace(model, compression=tuple(rules))


def keep_maps(model: RunModel, folder: Path) -> RunModel:
    """Copy the maps that a model's rules name into a folder; the model that names the copies, by their names there."""
    rules = tuple(
        rule if rule.maps is None else replace(rule, maps=kept_name(number))
        for number, rule in enumerate(model.compression)
    )
    for number, rule in enumerate(model.compression):
        if rule.maps is not None:
            save_maps(load_maps(rule.maps), folder / kept_name(number))
    return replace(model, compression=rules)


def check_maps(model: RunModel, folder: Path) -> None:
    """UsageError where the maps that a model's rules name are no longer those that were kept in a folder."""
    for number, rule in enumerate(model.compression):
        if rule.maps is not None:
            kept, now = load_maps(folder / kept_name(number)), load_maps(rule.maps)
            same = kept.keys() == now.keys() and all(np.array_equal(kept[t].numbers, now[t].numbers) for t in kept)
            if not same:
                raise UsageError(
                    f"'{rule.maps}' has changed since this run began, and its weights mean nothing under other maps; "
                    f"put '{folder / kept_name(number)}' back there, or give another output"
                )


def kept_name(number: int) -> str:
    """The file of the maps of a rule of this number, in the folder of what was trained."""
    return f"maps-{number}.safetensors"
