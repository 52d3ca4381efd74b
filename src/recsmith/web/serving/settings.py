"""Every default and limit of the server, each with its unit and its reason, and how a request is refused."""

from recsmith._types import noun
from recsmith.errors import CorruptFile, Infeasible, NoPlanFound, RecSmithError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@noun
class Settings:
    """How the server runs. name: of its host, which the Host header of a request may name besides this machine's own.

    Bytes and seconds.
    """

    host: str = "127.0.0.1"
    token: str
    reader: str = ""  # a token that lets nobody change anything; none without
    runs: tuple[str, ...] = ()  # folders of training runs that are shown, besides those in `folder`
    upload_bytes: int = 16 * 2**20  # of a file: a plan of 2,000 tables on 128 devices has 0.7 MB; JSON grows 25-fold
    body_bytes: int = 2**20  # of any other request: moves and constraints of some thousand tables
    head_s: float = 10.0  # until the head of a request has come in, or the connection ends
    body_s: float = 30.0  # until a request has come in whole
    silent: int = 128  # connections without a request; the oldest ends where one more comes
    answering: int = 128  # requests that are answered at once
    absent_s: float = 30.0  # until a search ends whose client neither listens nor asks, if it was not told to stay
    most_tables: int = 20_000  # of a workload: plans of more are for the command line, which has no page to draw
    most_devices: int = 1_024
    most_cells: int = 2_000_000  # tables times devices: what arrays of searches and charts grow with
    longest_search_s: float = 600.0
    grace_s: float = 60.0  # beyond a search's limit of time, for reading, bounds and writing, before it is ended
    searches: int = 1  # that run at once: each takes a core
    waiting: int = 8  # searches that may wait for one that runs
    sessions: int = 16  # clients; the one that has been idle longest leaves
    idle_s: float = 12 * 3600.0  # until a session is forgotten
    folder: str | None = None  # where plans lie; None keeps them in memory, those of each client for itself
    kept_plans: int = 50  # of a session in memory; the oldest leaves
    opened_plans: int = 8  # of a folder, which stay read: some 10 MB each for 2,000 tables
    plan_bytes: int = 64 * 2**20  # of a plan in the folder; larger ones take the page minutes
    kept_files: int = 20  # workloads, clusters and streams of a session; the oldest leaves
    warm: int = 4  # evaluators that are kept for pricing by hand: some 10 MB each for 500 tables on 16 devices


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
