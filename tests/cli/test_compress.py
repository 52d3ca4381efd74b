"""`recsmith compress`."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recsmith.cli.compress import command
from recsmith.errors import RecSmithError
from recsmith.workloads import load_workload


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [*map(str, words)])


def test_a_smaller_workload_is_written_and_planned(tmp_path: Path):
    target = tmp_path / "small.yaml"
    found = run("dlrm-v2", "--target", "4x", "--cluster", "h100:8", "--planner", "size_greedy", "-o", target)
    assert found.exit_code == 0, found.stderr
    assert "97.36 GiB -> 24.34 GiB" in found.stdout
    assert "method: quotient_remainder" in found.stdout
    assert [line.split()[0] for line in found.stdout.splitlines()[-2:]] == ["as", "smaller"]
    assert len(load_workload(target).tables) == 26 + 18


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "0.5"], "such as 4x"),
        (["--target", "1e9", "--method", "hash"], "at most"),
        (["--target", "4", "-o", "kept.yaml"], "kept.yaml"),
    ],
)
def test_bad_words_are_one_sentence(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("kept.yaml").write_text("mine: 1\n")
    found = run("dlrm-v2", *words)
    assert isinstance(found.exception, RecSmithError)
    assert said in str(found.exception)
    assert Path("kept.yaml").read_text() == "mine: 1\n"
