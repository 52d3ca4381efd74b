"""How many ranks exchanges are measured with."""

from recsmith.errors import UsageError
from recsmith.jobs.machine import free_cores


def check_ranks(ranks: int) -> None:
    """Refuse fewer than two ranks, which exchange nothing."""
    if ranks < 2:
        raise UsageError(f"{ranks} ranks exchange nothing; measure at least 2")


def oversubscribed(ranks: int) -> bool:
    """Whether ranks outnumber the cores that this process may use, so that the scheduler is measured, not the link."""
    return ranks > free_cores()
