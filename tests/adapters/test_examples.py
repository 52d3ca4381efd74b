"""The examples run as a reader would run them."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
needs_torchrec = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plan_and_compare():
    lines = run(str(EXAMPLES / "plan_and_compare.py")).splitlines()
    assert [line.partition(" ms a step, no plan below ")[0].split()[0] for line in lines] == ["h100:8:", "h100:8x2:"]


@needs_torchrec
@pytest.mark.parametrize("launcher", [("--ranks", "2"), TORCHRUN], ids=["by itself", "torchrun"])
def test_torchrec_dropin(launcher: tuple[str, ...]):
    script = str(EXAMPLES / "torchrec_dropin.py")
    said = run(*launcher, script) if launcher is TORCHRUN else run(script, *launcher)
    plan, loss = said.splitlines()
    assert "user row_wise" in plan
    assert "device data_parallel" in plan
    losses = [float(number) for number in re.findall(r"\d+\.\d+", loss)]
    assert losses[-1] < losses[0] / 2
