"""A torchrun agent that ends with the process which started it: python -m recsmith.jobs.agent, with torchrun's options.

Every process of a local job, agent or rank, calls `end_with_parent` first, so that none outlives the job. Linux only.
"""

import ctypes
import os
import signal
import sys

PARENT = "RECSMITH_PARENT"  # environment: the process that a child of a job must not outlive
_PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent dies


def end_with_parent() -> None:
    """Have Linux kill this process when its parent dies, even by SIGKILL; leave at once where it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[PARENT]):
        sys.exit("the process that started this job is gone")
    os.environ[PARENT] = str(os.getpid())  # for the children of this one


if __name__ == "__main__":
    end_with_parent()
    from torch.distributed.run import main

    main()
