"""The command as a process: pipes, full disks, closed streams, signals. Never a traceback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.process import heed_interrupts

import recsmith
from recsmith.cli.of_systems import with_systems
from recsmith.training.listed import SYSTEMS

Shell = Callable[..., Any]
PLAN = "$RECSMITH plan criteo-kaggle --cluster h100:2 --planner cost_greedy --cost-model torchrec"


def test_python_m_recsmith_is_the_command(shell: Shell):
    done = shell("$RECSMITH --version")
    assert done == (0, f"recsmith, version {recsmith.__version__}\n", "")


def test_shells_can_complete_its_words(shell: Shell):
    done = shell("$RECSMITH", _RECSMITH_COMPLETE="bash_complete", COMP_WORDS="recsmith plan --clu", COMP_CWORD="2")
    assert done == (0, "plain,--cluster\n", "")


def test_a_plan_goes_through_a_pipe(shell: Shell):
    done = shell(f"set -o pipefail; {PLAN} -o - | $RECSMITH simulate - --format json")
    assert done.code == 0
    assert json.loads(done.out)["cost_model"] == "torchrec"


@pytest.mark.parametrize("words", ["--format json", "--help"])
def test_a_reader_that_goes_away_is_no_failure(shell: Shell, words: str):
    done = shell(f"{PLAN} {words} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.code, done.err) == (0, "")


def test_a_reader_that_takes_one_line_gets_it(shell: Shell):
    done = shell(f"{PLAN} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("plan     26 tables")


@pytest.mark.parametrize("words", ["--format table", "--help"])
def test_a_full_disk_behind_stdout_is_a_failure(shell: Shell, words: str):
    done = shell(f"{PLAN} {words} > /dev/full")
    assert done.code == 1
    assert done.err == (
        "recsmith: cannot write the output: No space left on device; check the disk and that stdout is open\n"
    )


def test_a_closed_stdout_is_a_failure_before_any_work(shell: Shell, tmp_path: Path):
    done = shell(f"{PLAN} -o plan.json >&-")
    assert (done.code, done.err) == (1, "recsmith: standard output is closed; send it to a file, or to /dev/null\n")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_stdin_is_a_usage_error(shell: Shell):
    done = shell("$RECSMITH plan - --cluster h100:2 <&-")
    assert done.code == 2
    assert "standard input is closed" in done.err


def test_a_closed_stderr_changes_no_exit_code(shell: Shell):
    assert shell("$RECSMITH plan nowhere.yaml --cluster h100:2 2>&-") == (2, "", "")


def test_a_full_disk_behind_o_leaves_the_old_file(shell: Shell, tmp_path: Path):
    (tmp_path / "plan.json").write_text("old")
    done = shell(f"ulimit -f 1; {PLAN} -o plan.json --force")
    assert done.code == 1
    assert "cannot write 'plan.json': File too large; any file that was there is unchanged" in done.err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.json", "old")]


def test_o_writes_to_pipes(shell: Shell):
    done = shell(f"mkfifo pipe; wc -l < pipe > lines & {PLAN} -o pipe > /dev/null && wait && cat lines")
    assert done.code == 0
    assert int(done.out) > 26


def test_an_output_that_stdout_cannot_spell_is_a_failure(shell: Shell):
    done = shell(
        "$RECSMITH plan criteo-kaggle --cluster h100:8x3 --planner cost_greedy --cost-model torchrec -v",
        PYTHONIOENCODING="latin-1",
    )
    assert done.code == 1
    assert done.err.endswith("; set PYTHONIOENCODING=utf-8\n")


@pytest.mark.soak  # tests/planners/test_contract.py asks every planner
def test_plans_are_the_same_for_any_hash_seed(shell: Shell):
    first, second = (shell(f"{PLAN} --planner auto -o -", PYTHONHASHSEED=seed) for seed in ("0", "1"))
    assert first.out == second.out != ""


def test_an_interrupt_is_one_line(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "recsmith", "plan", str(pipe), "--cluster", "h100:2"],
        env={**os.environ, "PYTHONPATH": str(Path(recsmith.__file__).parents[1])},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    with pipe.open("wb"):  # opens once the command reads its workload
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "recsmith: interrupted before a plan was found\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plan", "x" * 300, "--cluster", "h100:2"], 2, "File name too long"),
        (["plan", "criteo-kaggle", "--cluster", "h100:2", "-o", "x" * 300], 2, "cannot write 'xxx"),
        (["measure", "show", "x" * 300], 2, "holds no measurements"),
        (["measure", "fold", "/proc/self/mem"], 2, "holds no measurements"),
        (
            ["plan", "criteo-kaggle", "--cluster", "h100:2", "--planner", "\x1b[2J"],
            2,
            r"no planner is called '\x1b[2J'",
        ),
        (["plan", "\x1b]0;title\x07", "--cluster", "h100:2"], 2, r"cannot read '\x1b]0;title\x07'"),
        (["plan", "--\x1b[2J"], 2, r"--\x1b[2J"),
        (["\x1b[2J"], 2, r"there is no command '\x1b[2J'"),
    ],
)
def test_what_is_quoted_is_named_and_safe_to_print(run: Shell, words: list[str], code: int, said: str):
    done = run(*words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["plan"], MemoryError(), "out of memory in the search; allow fewer types (--types), or --widths torchrec"),
        (["verify"], MemoryError(), "out of memory; end other programs, or use a machine that has more"),
        (["diff"], OSError(36, "File name too long", "far"), "'far': File name too long; check this path and its disk"),
        (["diff"], OSError(28, "No space left on device"), "cannot write the output: No space left on device"),
    ],
)
def test_errors_of_the_system_say_what_they_are_of(
    run: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str], error: Exception, said: str
):
    def fail() -> None:
        raise error

    monkeypatch.setattr("recsmith.cli.app._run", fail)
    monkeypatch.setattr("recsmith.cli.app._drop_stdout", lambda: None)
    done = run(*words)
    assert (done.code, said in done.err) == (1, True), done.err


def test_commands_of_a_system_go_with_its_entry():
    with_them = {name for group in ("Plan", "Train", "bench") for name in with_systems(group, {})}
    assert with_them == {each.name for commands in SYSTEMS.values() for each in commands}
    code = (
        "import sys; from recsmith.training.listed import SYSTEMS; SYSTEMS.clear()\n"
        "from recsmith.cli import main; main()"
    )
    told = [subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
            for words in (["--help"], ["search", "run.yaml"], ["bench", "online", "run.yaml"])]  # fmt: skip
    assert [each.returncode for each in told] == [0, 2, 2]
    assert not with_them & {line.split()[0] for line in told[0].stdout.splitlines() if line.startswith("  ")}
    assert "there is no command 'search'" in told[1].stderr
    assert "'online'" in told[2].stderr


def test_commands_of_systems_stand_behind_those_that_they_name():
    listed = list(with_systems("Train", {"train": ("", ""), "evaluate": ("", ""), "data": ("", ""), "feed": ("", "")}))
    behind = {each.name: each.after for commands in SYSTEMS.values() for each in commands if each.group == "Train"}
    assert all(listed.index(name) > listed.index(after) for name, after in behind.items() if after in listed)
    assert listed[-1] == "feed"
