"""card.json of an exported model: what was trained, read without torch."""

from dataclasses import replace
from pathlib import Path

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
