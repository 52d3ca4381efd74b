"""The agent of a host: python -m recsmith.jobs.hosts.agent SETTINGS PIPE, with a HostSettings as JSON.

It runs torchrun's agent in a meeting of hosts, and ends with the process that started it. Why a job did not end well,
it writes to a pipe, by its descriptor.
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
    """What an agent is told.

    folder: where hosts meet. name, address: of this host. ranks: that it starts. counts: how many hosts may train
    together. restarts: of ranks that failed. words: what each rank runs, after `python`. patience_s: for which it waits
    for the fewest hosts. first_s: for which hosts of a new job wait for more than these.
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
    """Run the agent until the job has ended; the exit status. reason: descriptor of the pipe for why it failed."""
    folder = Path(settings.folder)
    os.environ |= {HOSTS_FOLDER: str(folder), "TORCH_ELASTIC_WORKER_IDENTICAL": "1"}
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    from recsmith.jobs.hosts.rendezvous import BACKEND, register

    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.ERROR)  # of ranks that it ends
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
    """What a rank of the last round raised on purpose, or else what the meeting did."""
    if meeting.round is not None and (file := refusal_file(folder, meeting.round.number)).exists():
        return json.loads(file.read_text())
    own = isinstance(error, RecSmithError)
    return {"kind": "RecSmithError", "message": str(error) if own else "ranks of this host failed; see what they said"}


def _say(text: str) -> None:
    print(f"recsmith: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # until torchrun has ranks to end first
    sys.exit(main(decode(HostSettings, parse_json(sys.argv[1], "settings of an agent"), "settings"), int(sys.argv[2])))
