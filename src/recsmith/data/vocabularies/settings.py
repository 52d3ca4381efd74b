"""What a spec says of the vocabulary of a feature: its file, and how much of that is used."""

from dataclasses import replace
from pathlib import Path

from recsmith._types import noun
from recsmith.data.source import found_beside
from recsmith.errors import check_rules, too_small

MOST_ROWS = 2**40


@noun
class VocabularySpec:
    """A file of values that `recsmith data vocabulary` wrote, and how much of it a feature uses.

    The table of the feature has `unknown` rows for all values that are not in the vocabulary, which share them by their
    hash, and behind them a row for each value, the most frequent one first.

    path: of the file. rows: most values that get a row of their own; none: all. least: how often a value must have
    been counted for that. unknown: rows that all others share; a value without a row of its own has always the same.
    """

    path: str
    rows: int | None = None
    least: int = 1
    unknown: int = 1

    def __post_init__(self) -> None:
        check_rules(
            too_small("rows of a vocabulary", self.rows, 1),
            too_small("least of a vocabulary", self.least, 1),
            None
            if 1 <= self.unknown <= MOST_ROWS
            else f"unknown of a vocabulary is {self.unknown}; it must be 1 to 2^40, since data that comes later holds "
            "values that nobody has counted",
        )

    def beside(self, folder: Path) -> "VocabularySpec":
        """With a path that is meant from a folder."""
        return replace(self, path=found_beside(self.path, folder))


def vocabulary_spec(said: str | VocabularySpec) -> VocabularySpec:
    """What a spec says of a vocabulary; a text is the path of its file, all of which is used."""
    return VocabularySpec(path=said) if isinstance(said, str) else said
