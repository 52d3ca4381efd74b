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
    """A value, a name or an option breaks a rule."""

    exit_code = 2


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
