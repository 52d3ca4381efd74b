"""Two hosts that reach each other over a network alone: its rate and bytes, and losses like the unsharded model's."""

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SENT = 500_000  # bytes
TALK = f"""
import os, socket
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        peer, _ = server.accept()
        left = {SENT}
        while left:
            left -= len(peer.recv(left))
        peer.sendall(b"!")
else:
    for _ in range(200):
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            __import__("time").sleep(0.05)
    peer.sendall(bytes({SENT}))
    assert peer.recv(1) == b"!"
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that makes two networks; skipped where none can be made."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    reason = importlib.import_module("two_networks").why_not("1mbit")
    if reason is not None:
        pytest.skip(f"two networks cannot be made here: {reason}")
    return [sys.executable, str(BENCHMARKS / "two_networks.py")]


def test_the_link_has_its_rate_and_counts_its_bytes(script: list[str]):
    done = subprocess.run(
        [*script, "--rate", "8mbit", "--", sys.executable, "-c", TALK], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = re.fullmatch(r"([\d.]+) s; sent over the link: ([\d,]+) bytes by host 0, ([\d,]+) by host 1\n", done.stderr)
    assert said is not None, done.stderr
    back, sent = (int(each.replace(",", "")) for each in said.groups()[1:])
    assert SENT < sent < 1.1 * SENT
    assert back < 0.1 * SENT
    assert float(said[1]) > (SENT - 262_144) / 1e6  # seconds at 8 Mbit/s, but for the first bucket


def test_a_rank_that_fails_ends_the_job_with_its_status(script: list[str]):
    failing = "import os, sys, time; sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(60)"
    done = subprocess.run([*script, "--", sys.executable, "-c", failing], capture_output=True, text=True, timeout=40)
    assert done.returncode == 3


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_killed(script: list[str], tmp_path: Path, how: signal.Signals):
    pids = tmp_path / "pids"
    waiting = f"import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(60)"
    with subprocess.Popen([*script, "--", sys.executable, "-c", waiting], stderr=subprocess.DEVNULL) as process:
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.02)
        process.send_signal(how)
    end = time.monotonic() + 20
    left = [int(pid) for pid in pids.read_text().split()]
    while left and time.monotonic() < end:
        left = [pid for pid in left if _runs(pid)]
    assert not left


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.soak  # four ranks; one host or two on one network are tested by default
@pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec")
def test_losses_of_two_hosts_with_a_network_each():
    words = ["--quick", "--jobs", "2x2net", "--types", "row_wise", "table_row_wise"]
    script = [sys.executable, str(BENCHMARKS / "train_exactness.py")]
    done = subprocess.run([*script, *words], capture_output=True, text=True, timeout=600, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    if "skipped" in done.stdout:
        pytest.skip(done.stdout.splitlines()[-1])
    found = re.findall(r"^(\w+) .* 10 steps, largest relative difference (\S+)$", done.stdout, re.MULTILINE)
    assert [kind for kind, _ in found] == ["row_wise", "table_row_wise"]
    assert max(float(apart) for _, apart in found) < 1e-6
