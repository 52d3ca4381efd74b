"""Two hosts that reach each other over a network alone: their losses are those of the unsharded model."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "train_exactness.py"


@pytest.mark.soak  # four ranks; one host or two on one network are tested by default
@pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec")
def test_losses_of_two_hosts_with_a_network_each():
    words = ["--quick", "--jobs", "2x2net", "--types", "row_wise", "table_row_wise"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    if "skipped" in done.stdout:
        pytest.skip(done.stdout.splitlines()[-1])
    found = re.findall(r"^(\w+) .* 10 steps, largest relative difference (\S+)$", done.stdout, re.MULTILINE)
    assert [kind for kind, _ in found] == ["row_wise", "table_row_wise"]
    assert max(float(apart) for _, apart in found) < 1e-6
