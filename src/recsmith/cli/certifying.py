"""The certificate of `recsmith plan --certificate`: computed before the plan is printed, and written after it."""

from typing import Any

from recsmith.cli.live import live
from recsmith.cli.options import command_age_s
from recsmith.cli.printing import note
from recsmith.errors import UsageError


class Certifying:
    """The certificate of a command's plan, whose printed bound is then at least what the certificate proves."""

    def __init__(self, target: str | None, *, prove: bool) -> None:
        """target: the file to write; None if no certificate is wanted. prove: whether --prove wants a better bound."""
        self.target, self.prove = target, prove
        self._made: Any = None
        self._refused: UsageError | KeyboardInterrupt | None = None

    def bounded(self, plan: Any) -> Any:
        """The plan with the certified bound if that is higher; `write` says why if nothing was certified."""
        try:
            self._certify(plan)
        except (UsageError, KeyboardInterrupt) as error:
            self._refused = error
        return plan if self._made is None else self._made.plan

    def write(self, plan: Any) -> None:
        """Write the certificate and print a note on it, after the plan was printed."""
        if self._refused is not None:
            raise self._refused
        if self._made is None:
            self._certify(plan)
        if self.target is None or self._made is None:
            return
        from recsmith.plans.certificates import save_certificate
        from recsmith.reports.certificates import certified_words

        save_certificate(self._made, self.target)
        note(certified_words(self._made, self.target))

    def _certify(self, plan: Any) -> None:
        if self.target is None:
            return
        from recsmith.analyses.certificates import PROVED_WORK, WORK, certify

        with live("certifying", command_age_s):
            self._made = certify(plan, work=PROVED_WORK if self.prove else WORK)
