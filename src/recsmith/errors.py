"""What can go wrong, in one tree.

RecSmithError
├── UsageError          a value, name or option breaks a rule               exit 2
│   ├── CorruptFile     a file is not what it says it is                    exit 2
│   ├── PlanMismatch    a plan does not fit its own workload and cluster    exit 2
│   └── MissingExtra    an optional part is not installed                   exit 2
├── Infeasible          no plan exists: proved                              exit 3
└── NoPlanFound         the search gave up; this proves nothing             exit 1

Every message says the rule, the values that break it, and what to do next. Messages quote files and names, so they are
made safe to print where they are made.
"""

import re

# C0 but for tab and newline, DEL and C1; separators of lines; marks that turn the direction of text; surrogates
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAKS = {ord("\n"): r"\n", ord("\t"): r"\t"}


class RecSmithError(Exception):
    """Catch this to catch everything that RecSmith raises on purpose."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class UsageError(RecSmithError):
    """A value, a name or an option breaks a rule, or several rules are broken at once.

    rules: what is said of each.
    """

    exit_code = 2

    def __init__(self, *rules: object) -> None:
        several = f"{len(rules)} rules are broken: " if len(rules) > 1 else ""
        super().__init__(several + "; ".join(map(str, rules)))
        self.rules = tuple(printable(str(rule)) for rule in rules)


class CorruptFile(UsageError):
    """A file cannot be read as what it should be: syntax, encoding, size, schema, or a damaged digest."""


class PlanMismatch(UsageError):
    """A plan does not fit its workload and cluster: a hole, an overlap, an unknown rank, an illegal width."""


class MissingExtra(UsageError):
    """An optional dependency is needed and not installed; the message names the extra."""


class Infeasible(RecSmithError):
    """No plan exists in the stated space, and that is proved; the message names the smallest change that helps."""

    exit_code = 3


class NoPlanFound(RecSmithError):
    """The search found no plan; one may still exist."""


def too_small(what: str, value: float | None, least: int = 0) -> str | None:
    """The rule that a value below `least` breaks; None for one that keeps it, and for no value."""
    wanted = f"at least {least:,}" if least else "0 or more"
    return None if value is None or value >= least else f"{what} is {value}; it must be {wanted}"


LARGEST_SEED = 2**63 - 1
MOST_STEPS = 2**40  # and epochs, samples between two of something: more than any job counts


def outside(what: str, value: float | None, least: int = 0, most: int = MOST_STEPS) -> str | None:
    """The rule that a whole number below `least` or above `most` breaks; None for one that keeps it, and for none.

    Whatever loops over a number of a file, or takes memory for it, has a limit here: files come from anywhere.
    """
    if value is not None and value > most:
        return f"{what} is {value:,}; it must be at most {most:,}"
    return too_small(what, value, least)


def check_rules(*broken: str | None) -> None:
    """Raise UsageError of all rules that are broken; None stands for one that is kept."""
    rules = [rule for rule in broken if rule is not None]
    if rules:
        raise UsageError(*rules)


def printable(text: str) -> str:
    r"""The text with every control character but tabs and newlines written out, such as `\x1b`."""
    return _CONTROL.sub(_written_out, text)


def one_line(text: str) -> str:
    r"""The text as it may stand in a cell or behind a label: tabs and newlines are written out, too."""
    return printable(text).translate(_LINE_BREAKS)


def printable_json(text: str) -> str:
    r"""JSON with the same characters written as JSON's escapes (`\u009b`): the same data, safe to print."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
