"""Settings of a feature's vocabulary: its file, and how many of its values are used."""

from dataclasses import replace
from pathlib import Path

from recsmith._types import noun
from recsmith.data.source import found_beside
from recsmith.errors import check_rules, too_small

MOST_ROWS = 2**40  # largest allowed `unknown`


@noun
class VocabularySpec:
    """A file of values that `recsmith data vocabulary` wrote, and how many of its values a feature uses.

    The first `unknown` rows of the feature's table are shared, by hash, by all values without a row of their own. They
    are followed by one row per value, the most frequent value first.

    path: the file. rows: largest number of values that get a row of their own; none: all. least: how often a value must
    have been counted to get one. unknown: number of rows that all other values share; each of these values always
    has the same row.
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
        """The settings with the path resolved in this folder, if it does not exist in the working directory."""
        return replace(self, path=found_beside(self.path, folder))


def vocabulary_spec(said: str | VocabularySpec) -> VocabularySpec:
    """The settings of a vocabulary; a text is the path of a file of which all values are used."""
    return VocabularySpec(path=said) if isinstance(said, str) else said
