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

from recsmith._printable import printable


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


def check_rules(*broken: str | None) -> None:
    """Raise UsageError of all rules that are broken; None stands for one that is kept."""
    rules = [rule for rule in broken if rule is not None]
    if rules:
        raise UsageError(*rules)
