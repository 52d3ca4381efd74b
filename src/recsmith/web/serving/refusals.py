"""What the server answers where it cannot do what is asked: a status and one sentence."""

from recsmith.errors import CorruptFile, Infeasible, NoPlanFound, RecSmithError


class Refused(RecSmithError):
    """A request that is refused: its HTTP status and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: RecSmithError) -> int:
    """The HTTP status of an error of RecSmith: what was sent breaks a rule, or no plan does what it asks."""
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, Infeasible | NoPlanFound):
        return 409
    return 422 if isinstance(error, CorruptFile) else 400
