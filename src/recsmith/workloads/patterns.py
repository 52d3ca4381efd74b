"""Table selectors in rules: a table name, or a pattern such as 'user_*'."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from recsmith.errors import UsageError
from recsmith.files import did_you_mean


def fits(pattern: str, table: str) -> bool:
    """Whether a table has this name, or a name that matches this pattern (`*`, `?`, `[ab]`)."""
    return pattern == table or fnmatchcase(table, pattern)


def check_fit(what: str, patterns: Iterable[str], tables: Sequence[str]) -> None:
    """Raise UsageError for the first name or pattern that matches none of the tables. what: prefix of the message."""
    for pattern in patterns if tables else ():
        if not any(fits(pattern, table) for table in tables):
            raise UsageError(f"{what} '{pattern}' matches no table{did_you_mean(pattern, list(tables))}")
