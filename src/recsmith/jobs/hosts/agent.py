"""The agent of a host: python -m recsmith.jobs.hosts.agent SETTINGS PIPE, with a HostSettings as JSON.

It runs torchrun's agent in a meeting of hosts, and ends with its parent process. If the job fails, it writes the reason
to the pipe with the file descriptor PIPE.
"""

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import RecSmithError, printable
from recsmith.files import decode, parse_json
from recsmith.jobs.agent import end_with_parent
from recsmith.jobs.hosts.meeting import FIRST_S, PATIENCE_S, HostMeeting, JobEnded
from recsmith.jobs.hosts.rank import HOSTS_FOLDER
from recsmith.jobs.hosts.rounds import refusal_file


@noun
class HostSettings:
    """Settings of an agent.

    folder: the folder where hosts meet. name, address: those of this host. ranks: number of ranks that it starts.
    counts: numbers of hosts that may train together. restarts: how often failed ranks are started again. words: the
    arguments of `python` for each rank. patience_s: seconds to wait for the fewest hosts. first_s: seconds for which
    hosts of a new job wait for more than these.
    """

    folder: str
    name: str
    address: str
    ranks: int
    counts: tuple[int, ...]
    restarts: int
    words: tuple[str, ...]
    patience_s: float = PATIENCE_S
    first_s: float = FIRST_S


def main(settings: HostSettings, reason: int) -> int:
    """Run the agent until the job has ended; returns the exit status. reason: file descriptor of the error pipe."""
    folder = Path(settings.folder)
    os.environ |= {HOSTS_FOLDER: str(folder), "TORCH_ELASTIC_WORKER_IDENTICAL": "1"}
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    from recsmith.jobs.hosts.rendezvous import BACKEND, register

    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.ERROR)  # of ended ranks
    meeting = HostMeeting(
        folder, settings.name, settings.address, ranks=settings.ranks, counts=settings.counts, say=_say,
        patience_s=settings.patience_s, first_s=settings.first_s,
    )  # fmt: skip
    handler = register(meeting)
    words = [
        "--nnodes", f"{meeting.least}:{meeting.most}", "--nproc-per-node", str(settings.ranks), "--rdzv-backend",
        BACKEND, "--rdzv-id", meeting.agent.id, "--max-restarts", str(settings.restarts), "--no-python",
        sys.executable, *settings.words,
    ]  # fmt: skip
    try:
        torchrun(words)
    except JobEnded as ended:
        _say(str(ended))
    except (ChildFailedError, RecSmithError) as error:
        os.write(reason, json.dumps(_why(folder, meeting, error)).encode())
        return 1
    except SignalException as asked:
        handler.shut = False
        return 128 + int(asked.sigval)
    finally:
        meeting.close(ended=handler.shut)
    return 0


def _why(folder: Path, meeting: HostMeeting, error: BaseException) -> Any:
    """The RecSmith error that a rank of the last round raised, else the meeting's error, as kind and message."""
    if meeting.round is not None and (file := refusal_file(folder, meeting.round.number)).exists():
        return json.loads(file.read_text())
    own = isinstance(error, RecSmithError)
    return {"kind": "RecSmithError", "message": str(error) if own else "ranks of this host failed; see what they said"}


def _say(text: str) -> None:
    print(f"recsmith: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this agent in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # until torchrun installs its own handler
    sys.exit(main(decode(HostSettings, parse_json(sys.argv[1], "settings of an agent"), "settings"), int(sys.argv[2])))
