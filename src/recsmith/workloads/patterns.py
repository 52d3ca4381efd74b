"""Tables as rules name them: by a name, or by a pattern such as 'user_*'."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from recsmith.errors import UsageError
from recsmith.files import did_you_mean


def fits(pattern: str, table: str) -> bool:
    """Whether a table has this name, or a name of this pattern (`*`, `?`, `[ab]`)."""
    return pattern == table or fnmatchcase(table, pattern)


def check_fit(what: str, patterns: Iterable[str], tables: Sequence[str]) -> None:
    """UsageError of the first name or pattern that fits none of some tables: it is misspelt. what: stands before it."""
    for pattern in patterns if tables else ():
        if not any(fits(pattern, table) for table in tables):
            raise UsageError(f"{what} '{pattern}' matches no table{did_you_mean(pattern, list(tables))}")
