"""The exceptions that RecSmith raises, as one tree.

RecSmithError
├── UsageError          a value, name or option breaks a rule               exit 2
│   ├── CorruptFile     a file is not what it says it is                    exit 2
│   ├── PlanMismatch    a plan does not fit its own workload and cluster    exit 2
│   └── MissingExtra    an optional part is not installed                   exit 2
├── Infeasible          no plan exists: proved                              exit 3
└── NoPlanFound         the search gave up; this proves nothing             exit 1

Every message states the rule, the values that break it, and what to do next. Messages quote files and names, so control
characters are written out as soon as an exception is created.
"""

import re

# C0 except tab and newline, DEL and C1; line separators; marks that change the direction of text; surrogates
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAKS = {ord("\n"): r"\n", ord("\t"): r"\t"}


class RecSmithError(Exception):
    """Catch this to catch everything that RecSmith raises on purpose."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class UsageError(RecSmithError):
    """A value, a name or an option breaks a rule, or several rules are broken at once.

    rules: one message for each broken rule.
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
    """Message for a value below `least`; None if the value keeps the rule or is None."""
    wanted = f"at least {least:,}" if least else "0 or more"
    return None if value is None or value >= least else f"{what} is {_shown(value)}; it must be {wanted}"


LARGEST_SEED = 2**63 - 1
LONGEST_BITS = 160  # of a whole number that a message shows digit by digit
MOST_STEPS = 2**40  # limit for numbers of steps, epochs and samples between two events: more than any job counts


def outside(what: str, value: float | None, least: int = 0, most: int = MOST_STEPS) -> str | None:
    """Message for a whole number below `least` or above `most`; None if the number keeps the rule or is None.

    Every number from a file that code loops over, or allocates memory for, has a limit: files may come from anywhere.
    """
    if value is not None and value > most:
        return f"{what} is {_shown(value, ',')}; it must be at most {most:,}"
    return too_small(what, value, least)


def _shown(value: float, form: str = "") -> str:
    """A number for a message; Python writes no whole number of more than 4,300 digits, and nobody reads fifty."""
    bits = int(value).bit_length() if isinstance(value, int) else 0
    return f"a number of {bits:,} bits" if bits > LONGEST_BITS else format(value, form)


def check_rules(*broken: str | None) -> None:
    """Raise one UsageError with the messages of all broken rules; None stands for a rule that is kept."""
    rules = [rule for rule in broken if rule is not None]
    if rules:
        raise UsageError(*rules)


def printable(text: str) -> str:
    r"""The text with every control character except tabs and newlines written out, such as `\x1b`."""
    return _CONTROL.sub(_written_out, text)


def one_line(text: str) -> str:
    r"""The text for a table cell or a label: control characters are written out, including tabs and newlines."""
    return printable(text).translate(_LINE_BREAKS)


def printable_json(text: str) -> str:
    r"""JSON text with the same characters written as JSON escapes (`\u009b`): the same data, safe to print."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
