"""Files and settings of a capture, and `recsmith capture`: runs a command whose Python processes capture themselves.

Each Python process of the command finds `injected/sitecustomize.py` first on its path, which waits for PyTorch's
optimizers; a process whose optimizer takes a step captures itself. A sitecustomize of the environment's own still runs.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import which

from recsmith._types import noun
from recsmith.errors import RecSmithError, UsageError, check_rules
from recsmith.files import dump_json

ABOUT_SCHEMA = "recsmith/capture/1"
MOST_RANKS = 2**16
LONGEST_S = 1e6  # seconds of a step


@noun
class CaptureSettings:
    """Which steps a capture takes: skip some, time some without the profiler, record one as the graph, profile some."""

    steps: int = 5  # trade-off: more steps even out a busy machine, and make larger files
    plain: int = 10
    skip: int = 3

    def __post_init__(self) -> None:
        check_rules(
            None if self.steps >= 1 else f"steps is {self.steps}; capture at least 1",
            None if self.plain >= 1 else f"plain is {self.plain}; at least 1 step must run without the profiler",
            None if self.skip >= 0 else f"skip is {self.skip}; it must be 0 or more",
        )

    @property
    def needed(self) -> int:
        """Steps that a job must run; three are added: for the graph, one that is not used, and one that ends them."""
        return self.skip + self.plain + self.steps + 3


@noun
class CaptureAbout:
    """Facts about the capture of a rank, as it wrote them.

    plain_step_s: seconds of a step without the profiler; plain_host_s: the host thread's own time in that step, which
    other programs disturb least. event_s, annotation_s, launch_s: seconds that the profiler adds to an operator, to an
    annotation such as those of optimizers, and to a launch on a GPU. None in older captures.
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
    launch_s: float | None = None

    def __post_init__(self) -> None:
        times = (self.plain_step_s, self.event_s, self.annotation_s, self.launch_s or 0.0, self.plain_host_s or 0.0)
        check_rules(
            None if 0 <= self.rank < self.ranks <= MOST_RANKS
            else f"rank {self.rank} of {self.ranks}; ranks are 1 to {MOST_RANKS:,}, and a rank is below that",
            None if all(0 <= each < LONGEST_S for each in times)
            else f"seconds of a capture are {times}; each is 0 to {LONGEST_S:g}",
        )  # fmt: skip


def trace_name(rank: int) -> str:
    """Name of the file of a rank's times: Kineto's, in Chrome's format."""
    return f"rank-{rank}.trace.json.gz"


def graph_name(rank: int) -> str:
    """Name of the file of a rank's execution graph."""
    return f"rank-{rank}.graph.json"


def about_name(rank: int) -> str:
    """Name of the file of facts about a rank's capture."""
    return f"rank-{rank}.about.json"


WORD = "RECSMITH_CAPTURE"  # environment variable: the folder and the settings of a capture, as JSON


def capture_command(folder: Path, command: Sequence[str], settings: CaptureSettings, *, force: bool = False) -> int:
    """Run a command to its end and capture its steps into a folder; return how many ranks wrote their capture.

    Raises:
        UsageError: the folder is not empty, or the command cannot be started.
        RecSmithError: the command failed, or ended before all steps were captured.
    """
    if which(command[0]) is None:  # before an earlier capture is removed
        raise UsageError(f"cannot start '{command[0]}': no such command; give a command after --")
    _prepare(folder, force)
    encoded = dump_json({"folder": str(folder.resolve()), **asdict(settings)})
    places = [str(Path(__file__).parent / "injected"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, WORD: encoded, "PYTHONPATH": os.pathsep.join(places)}
    try:
        ended = subprocess.run(list(command), env=environment, check=False).returncode
    except OSError as error:
        raise UsageError(f"cannot start '{command[0]}': {error.strerror}; give a command after --") from None
    written = len(list(folder.glob(about_name(0).replace("0", "*"))))
    if ended:
        raise RecSmithError(f"'{command[0]}' ended with code {ended}; {written} ranks had captured their steps by then")
    if not written:
        raise RecSmithError(
            f"'{command[0]}' ended before {settings.needed} steps of a torch.optim optimizer, so nothing was captured; "
            "train longer, ask for fewer --steps, or use recsmith.capture in your loop"
        )
    return written


def _prepare(folder: Path, force: bool) -> None:
    """Make the folder; remove an earlier capture in it if `force`, and never anything else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write '{folder}': {error.strerror}; choose a folder you may write to") from None
    mine = [each for name in (about_name, graph_name, trace_name) for each in folder.glob(name(0).replace("0", "*"))]
    strange = [each for each in folder.iterdir() if each not in mine]
    if strange or (mine and not force):
        found = (strange or mine)[0].name
        hint = "give a new or an empty folder" if strange else "give a new folder, or --force to replace it"
        raise UsageError(f"'{folder}' holds '{found}'; {hint}")
    for each in mine:
        each.unlink()
