"""Every default and limit of the server, each with its unit and its reason, and the refusal of a request."""

from recsmith._types import noun
from recsmith.errors import CorruptFile, Infeasible, NoPlanFound, RecSmithError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@noun
class Settings:
    """How the server runs. host: its address, which a request's Host header may name besides this machine's own.

    Sizes are in bytes and times in seconds.
    """

    host: str = "127.0.0.1"
    token: str
    reader: str = ""  # a token whose clients may change nothing; '' for none
    runs: tuple[str, ...] = ()  # folders of training runs that are shown, besides those in `folder`
    upload_bytes: int = 16 * 2**20  # of a file: a plan of 2,000 tables on 128 devices has 0.7 MB; JSON grows 25-fold
    body_bytes: int = 2**20  # of any other request: moves and constraints of some thousand tables
    head_s: float = 10.0  # until the head of a request must have arrived; then the connection is closed
    body_s: float = 30.0  # until a whole request must have arrived
    silent: int = 128  # connections without a request; if one more comes, the oldest is closed
    answering: int = 128  # requests that are answered at once
    absent_s: float = 30.0  # until a search ends whose client neither listens nor asks, unless it was told to stay
    most_tables: int = 20_000  # of a workload: plans of more are for the command line, which has no page to draw
    most_devices: int = 1_024
    most_cells: int = 2_000_000  # tables times devices: arrays of searches and charts grow with it
    longest_search_s: float = 600.0
    grace_s: float = 60.0  # beyond a search's time limit, for reading, bounds and writing, before it is killed
    searches: int = 1  # that run at once: each takes a core
    waiting: int = 8  # searches that may wait for one that runs
    sessions: int = 16  # clients; the one that has been idle longest is dropped
    idle_s: float = 12 * 3600.0  # until a session is forgotten
    folder: str | None = None  # where plans are kept; None keeps them in memory, for each client separately
    kept_plans: int = 50  # of a session in memory; the oldest is dropped
    opened_plans: int = 8  # plans of a folder kept in memory: some 10 MB each for 2,000 tables
    plan_bytes: int = 64 * 2**20  # of a plan in the folder; the page needs minutes for larger ones
    kept_files: int = 20  # workloads, clusters and streams of a session; the oldest is dropped
    warm: int = 4  # evaluators kept for pricing by hand: some 10 MB each for 500 tables on 16 devices


class Refused(RecSmithError):
    """A request that is refused: its HTTP status and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: RecSmithError) -> int:
    """The HTTP status of an error of RecSmith: its own, 409 if there is no plan, 422 for a corrupt file, else 400."""
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, Infeasible | NoPlanFound):
        return 409
    return 422 if isinstance(error, CorruptFile) else 400
