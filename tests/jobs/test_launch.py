"""Local jobs: results in order of ranks, failures with the rank's own words, and no child that outlives its parent."""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.process import heed_interrupts

from recsmith.adapters.installed import require_torchrec
from recsmith.errors import MissingExtra, RecSmithError, UsageError
from recsmith.jobs.launch import LOCKED, PREFIX, job_environment, job_folder, launch, remove_left_folders
from recsmith.jobs.machine import LOOPBACK, free_port

pytestmark = pytest.mark.torchrun
needs_torchrec = pytest.mark.skipif(importlib.util.find_spec("torchrec") is None, reason="torchrec is not installed")
SOAK = pytest.mark.soak  # starting a job takes seconds: by default one of each kind, the hardest
PATIENCE_S = 60.0
LAUNCH_AND_SLEEP = """
import sys
from recsmith.jobs.launch import launch
launch("test_launch:sleep", {"started": sys.argv[1]}, ranks=1)
"""


# --- what ranks run -----------------------------------------------------------------------------------------------


def where(word: str) -> list[str]:
    return [word, *(os.environ[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"))]


def fail(rank: int) -> None:
    import torch.distributed as dist

    if dist.get_rank() == rank:
        raise ValueError("no such city")
    dist.barrier()


def killed_once() -> int:
    import torch
    import torch.distributed as dist

    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 0 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    both = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(both)
    if attempt == 1 and int(both) == 3 and dist.get_rank() == 1:
        raise UsageError("no such street")
    return int(both)


def where_at_its_end(word: str, rank: int) -> list[str]:
    """The rank is killed where it would end, after its result was written."""
    if os.environ["RANK"] == str(rank):
        vars(sys.modules["__main__"])["_end"] = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    return where(word)


def sleep(started: str) -> None:
    Path(started, os.environ["RANK"]).touch()
    time.sleep(600)


def children(name: Path) -> list[str]:
    """Command lines of living processes that name a folder: agents and ranks name that of their job."""
    lines: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if str(name) in line:
            lines.append(line)
    return lines


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


# --- tests --------------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test alone, in which jobs get theirs; ranks find this file."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return folder


@needs_torchrec
@pytest.mark.parametrize(
    ("ranks", "hosts", "killed"),
    [pytest.param(1, 1, None, marks=SOAK), pytest.param(2, 1, None, marks=SOAK), (2, 1, 1),
     pytest.param(4, 2, None, marks=SOAK)],
)  # fmt: skip
def test_results_come_in_order_of_ranks_also_where_one_is_killed_after_its_last_write(
    jobs: Path, ranks: int, hosts: int, killed: int | None
):
    local = ranks // hosts
    expected = [["hello", str(rank), str(rank % local), str(local), str(ranks)] for rank in range(ranks)]
    found = launch("test_launch:where_at_its_end", {"word": "hello", "rank": killed}, ranks=ranks, hosts=hosts)
    assert found == expected
    assert (children(jobs), list(jobs.iterdir())) == ([], [])


@needs_torchrec
@pytest.mark.parametrize("hosts", [pytest.param(1, marks=SOAK), 2])
def test_a_failing_rank_speaks_for_itself_and_ends_the_others(jobs: Path, hosts: int):
    with pytest.raises(RecSmithError) as caught:
        launch("test_launch:fail", {"rank": 1}, ranks=2, hosts=hosts)
    message = str(caught.value)
    assert message.startswith("a rank of the local job failed\nrank-1: Traceback")
    assert message.endswith("ValueError: no such city")
    assert "in fail" in message
    assert (children(jobs), list(jobs.iterdir())) == ([], [])


@needs_torchrec
def test_ranks_start_again_after_a_kill_and_what_they_raise_at_last_keeps_its_class(jobs: Path):
    with pytest.raises(UsageError, match=r"^no such street$"):
        launch("test_launch:killed_once", {}, ranks=2, restarts=1)


def test_the_users_number_of_threads_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.jobs.launch.free_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert job_environment(2, own=True)["OMP_NUM_THREADS"] == "4"
    assert job_environment(16, own=True)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert job_environment(2, own=True)["OMP_NUM_THREADS"] == "3"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_rank_that_waits_for_others_says_so():
    code = "from recsmith.jobs import worker; worker.WAITING_S = 0.2; worker.join_group('gloo')"
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port())}
    environment = os.environ | place | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True) as rank:
        assert rank.stderr is not None
        line = next(line for line in rank.stderr if line.startswith("recsmith:"))
        rank.kill()
    assert line.startswith("recsmith: rank 0 of 2 has waited 0.2 s for the others at 127.0.0.1:")


@needs_torchrec
@pytest.mark.parametrize("timeout_s", [0.0, pytest.param(6.0, marks=SOAK)])  # while torchrun starts; while ranks run
def test_a_job_that_takes_too_long_is_ended(jobs: Path, tmp_path: Path, timeout_s: float):
    with pytest.raises(RecSmithError, match=f"did not end within {timeout_s:g} s"):
        launch("test_launch:sleep", {"started": str(tmp_path)}, ranks=2, timeout_s=timeout_s)
    assert (children(jobs), list(jobs.iterdir())) == ([], [])


@pytest.fixture
def sleeper(jobs: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python process in a launch, whose rank sleeps."""
    environment = {**os.environ, "TMPDIR": str(jobs), "PYTHONPATH": os.pathsep.join(sys.path)}
    started = tmp_path / "started"
    started.mkdir()
    command = [sys.executable, "-c", LAUNCH_AND_SLEEP, str(started)]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    ) as parent:
        try:
            assert wait_for(lambda: len(list(started.iterdir())) == 1), "the rank did not start"
            assert len(children(jobs)) == 2  # one agent, one rank
            yield parent
        finally:
            parent.kill()


@needs_torchrec
@pytest.mark.parametrize("end", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=SOAK)])
def test_children_end_with_a_parent_that_is_killed(jobs: Path, sleeper: subprocess.Popen[str], end: signal.Signals):
    sleeper.send_signal(end)
    assert sleeper.wait(PATIENCE_S) == -end
    assert wait_for(lambda: not children(jobs))
    (left,) = jobs.iterdir()
    os.utime(left, (0, 0))
    with job_folder() as folder:
        assert list(jobs.iterdir()) == [folder]


@needs_torchrec
def test_an_interrupt_ends_the_children_first(jobs: Path, sleeper: subprocess.Popen[str]):
    sleeper.send_signal(signal.SIGINT)
    _, said = sleeper.communicate(timeout=PATIENCE_S)
    assert sleeper.returncode == -signal.SIGINT
    assert said.endswith("KeyboardInterrupt\n")
    assert (children(jobs), list(jobs.iterdir())) == ([], [])


@needs_torchrec
def test_ranks_end_with_their_agent(jobs: Path, sleeper: subprocess.Popen[str]):
    agent = next(pid for pid in _pids() if _parent(pid) == sleeper.pid)
    os.kill(agent, signal.SIGKILL)
    assert "a rank of the local job failed" in sleeper.communicate(timeout=PATIENCE_S)[1]
    assert wait_for(lambda: not children(jobs))


def _pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize(("ranks", "hosts"), [(0, 1), (3, 2), (2, 0), (-2, 1)])
def test_ranks_and_hosts_must_fit(ranks: int, hosts: int):
    with pytest.raises(UsageError, match=f"{ranks} ranks on {hosts} hosts; both must be at least 1"):
        launch("test_launch:where", {"word": ""}, ranks=ranks, hosts=hosts)


@pytest.mark.parametrize("absent", ["torch", "fbgemm_gpu", "torchrec"])
def test_a_missing_package_is_named_with_the_commands(absent: str, monkeypatch: pytest.MonkeyPatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("recsmith.adapters.installed.find_spec", lambda name: None if name == absent else real(name))
    with pytest.raises(MissingExtra, match=f"{absent} is not installed") as caught:
        require_torchrec()
    for command in ("pip install 'torch==2.13.*' 'fbgemm-gpu-cpu==1.8.*'", "pip install --no-deps torchrec==1.8.0"):
        assert command in str(caught.value)


# --- folders of jobs --------------------------------------------------------------------------------------------------


def test_what_a_killed_job_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, young, other = tmp_path / f"{PREFIX}left", tmp_path / f"{PREFIX}young", tmp_path / "thesis"
    for folder in (left / "logs-0", young, other):
        folder.mkdir(parents=True)
        (folder / "rank-0.json").touch()
    killed = tmp_path / f"{PREFIX}killed"  # this moment
    killed.mkdir()
    (killed / LOCKED).touch()
    linked = tmp_path / f"{PREFIX}link"
    linked.symlink_to(other)
    for folder in (left, other):
        os.utime(folder, (0, 0))
    with job_folder() as mine:
        assert sorted(tmp_path.iterdir()) == sorted([mine, young, other, linked])
    assert sorted(tmp_path.iterdir()) == sorted([young, other, linked])
    assert (other / "rank-0.json").exists()


def test_the_folder_of_a_job_that_runs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with job_folder() as mine:
        os.utime(mine, (0, 0))
        remove_left_folders(tmp_path)
        assert mine.is_dir()
