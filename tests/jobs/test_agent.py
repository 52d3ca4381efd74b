"""A process of a job ends with its parent. That children end with one that is killed: test_launch.py."""

import os
import subprocess
import sys

from recsmith.jobs.agent import PARENT

CHILD = """
import os
from recsmith.jobs.agent import PARENT, end_with_parent
end_with_parent()
print(os.environ[PARENT])
"""


def started(parent: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, PARENT: str(parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, timeout=60)


def test_a_process_whose_parent_is_gone_leaves_at_once():
    done = started(parent=os.getpid() + 1)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the process that started this job is gone\n"


def test_a_process_is_the_parent_of_its_own_children():
    done = started(parent=os.getpid())
    assert done.returncode == 0
    assert int(done.stdout) not in (0, os.getpid())
