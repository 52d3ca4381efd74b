"""The files of a capture: for each rank its trace, its graph, and what is known about both."""

from recsmith._types import noun
from recsmith.errors import check_rules

ABOUT_SCHEMA = "recsmith/capture/1"
MOST_RANKS = 2**16
LONGEST_S = 1e6  # of a step


@noun
class CaptureSettings:
    """Which steps a capture takes: it skips some, times some unwatched, takes one for the graph, and times some."""

    steps: int = 5  # trade-off: more of them even out a busy machine, and files grow
    plain: int = 10
    skip: int = 3

    def __post_init__(self) -> None:
        """Check counts."""
        check_rules(
            None if self.steps >= 1 else f"steps is {self.steps}; capture at least 1",
            None if self.plain >= 1 else f"plain is {self.plain}; at least 1 step must run without the profiler",
            None if self.skip >= 0 else f"skip is {self.skip}; it must be 0 or more",
        )

    @property
    def needed(self) -> int:
        """Steps that a job must run: one more for the graph, one after it that is not used, and one that ends them."""
        return self.skip + self.plain + self.steps + 3


@noun
class CaptureAbout:
    """What a rank wrote of its capture.

    plain_step_s: of a step without the profiler; plain_host_s: the host thread's own time of it, which other programs
    disturb least (None in older captures). event_s, annotation_s: what the profiler adds to an operator, and to
    an annotation such as those of optimizers.
    """

    rank: int
    ranks: int
    steps: int
    plain_step_s: float
    event_s: float
    annotation_s: float
    torch: str
    recsmith: str
    plain_host_s: float | None = None

    def __post_init__(self) -> None:
        """Check counts and seconds."""
        times = (self.plain_step_s, self.event_s, self.annotation_s, self.plain_host_s or 0.0)
        check_rules(
            None if 0 <= self.rank < self.ranks <= MOST_RANKS
            else f"rank {self.rank} of {self.ranks}; ranks are 1 to {MOST_RANKS:,}, and a rank is below that",
            None if all(0 <= each < LONGEST_S for each in times)
            else f"seconds of a capture are {times}; each is 0 to {LONGEST_S:g}",
        )  # fmt: skip


def trace_name(rank: int) -> str:
    """The file of a rank's times: Kineto's, in Chrome's format."""
    return f"rank-{rank}.trace.json.gz"


def graph_name(rank: int) -> str:
    """The file of a rank's execution graph."""
    return f"rank-{rank}.graph.json"


def about_name(rank: int) -> str:
    """The file of what is known about a rank's capture."""
    return f"rank-{rank}.about.json"
