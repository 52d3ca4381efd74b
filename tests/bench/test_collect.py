"""The steps that measure a GPU, on simulated hardware: they go on where they were, and say what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recsmith.bench.run_store import load_settings, open_run_store
from recsmith.measuring.compute.summary import summarize

ROOT = Path(__file__).parents[2]
PLANS = "--cost-model analytic --rows 4x64 --tasks 1 --planners size_greedy --visits 2"


def collect(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path), "MINUTES": "1",
                   "CASES": "--scale check --optimizers sgd"}  # fmt: skip
    script = ROOT / "benchmarks" / "gpu" / "collect.sh"
    return subprocess.run([script, *words], env=os.environ | environment | more, capture_output=True, text=True)


def test_samples_go_on(tmp_path: Path):
    pytest.importorskip("pyarrow")
    visits: list[int] = []
    for wanted in (10, 25):
        done = collect("simulated:h100", str(tmp_path), "samples", SAMPLES=str(wanted))
        assert done.returncode == 0, done.stderr
        found = summarize(tmp_path / "samples")
        assert (found.counts["ok"], found.about.scale, found.about.optimizers) == (wanted, "check", ("sgd",))
        visits.append(found.visits)
    assert visits[0] < visits[1]


def test_plans_that_were_made_elsewhere_are_measured(tmp_path: Path):
    missing = collect("simulated:h100", str(tmp_path), "plans", PLANS=PLANS)
    assert (missing.returncode, missing.stdout) == (0, "")
    assert "make them where the planners are" in missing.stderr
    plans = tmp_path / "plans"
    words = ["bench", "sharding", "--hardware", "simulated:h100", *PLANS.split(), "--plan-only", "-o", str(plans)]
    subprocess.run([sys.executable, "-m", "recsmith", *words], check=True, capture_output=True)
    assert not [line for line in (plans / "journal.jsonl").read_text().splitlines() if "measured" in json.loads(line)]
    done = collect("simulated:h100", str(tmp_path), "plans", PLANS=PLANS)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 visits measured" in (tmp_path / "plans.txt").read_text()
    with open_run_store(plans, load_settings(plans)) as book:
        assert len(book.measured) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 1, "the hardware, such as cuda:h200"),
        (("cuda:h200",), 1, "a folder for the results"),
        (("simulated:h100", "{tmp}", "sample"), 2, "no step is called 'sample'; steps are check, bandwidth"),
        (("simulated:h100", "{tmp}", "check"), 2, "hardware simulated:h100 computes no embeddings"),
        (("simulated:h100", "{tmp}", "bandwidth"), 1, "has no memory to copy in; measure cuda or cpu"),
    ],
)
def test_wrong_words_are_refused(tmp_path: Path, words: tuple[str, ...], code: int, said: str):
    done = collect(*(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert done.returncode == code
    assert said in done.stderr


def test_the_page_tells_what_there_is_and_what_is_missing(tmp_path: Path):
    (tmp_path / "check.txt").write_text("optimizer  weights  cases\n")
    script = ROOT / "benchmarks" / "gpu" / "report.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, script, str(tmp_path), "--model", "cpu"]
    page = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
    assert page.startswith("# AMD EPYC, 2 cores")
    assert "```\noptimizer  weights  cases\n```" in page
    assert "| Kendall's tau | 0.967 |" in page
    assert page.count("Not measured.") == 4
