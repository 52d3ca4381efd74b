"""What shells offer after Tab: real bash with the script that `recsmith completion` prints, and names that exist."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from recsmith.cli import completion
from recsmith.cli.app import COMMANDS, app

ASKED = r"""
source "$SCRIPT"
COMP_LINE="$LINE"; COMP_POINT=${#LINE}; COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
_recsmith_completion recsmith 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """What bash puts in the place of the last word of a line, in a folder with two files."""
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "recsmith"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m recsmith "$@"\n')
    command.chmod(0o755)
    (folder / "dlrm-mine.json").touch()
    script = folder / "script"
    script.write_text(completion.script("bash"))

    def offered(line: str) -> list[str]:
        path = os.pathsep.join([str(folder), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "--norc", "-c", ASKED], cwd=folder, capture_output=True, text=True, check=True,
            env={**os.environ, "PATH": path, "SCRIPT": str(script), "LINE": line},
        )  # fmt: skip
        return done.stdout.split()

    return offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("recsmith pla", ["plan", "planners"]),
        ("recsmith help simu", ["simulate"]),
        ("recsmith plan dlrm-", ["dlrm-v2", "dlrm-v4", "dlrm-v4-streaming", "dlrm-mine.json"]),
        ("recsmith plan w -c h10", ["h100"]),
        ("recsmith plan w --cluster h100:", ["1", "2", "4", "8", "16"]),
        ("recsmith plan w -c h100:8 --planner si", ["size_greedy", "size_lookup_greedy"]),
        ("recsmith compare w -c h100:8 --planners auto,lo", ["auto,longest_first", "auto,lookup_greedy"]),
        ("recsmith plan w --cost-model neural:h", ["h100", "h200"]),
        ("recsmith plan w --types row_wise,da", ["row_wise,data_parallel"]),
        ("recsmith measure show --no", []),
        ("recsmith completion z", ["zsh"]),
    ],
)
def test_bash_offers_names_and_files(in_bash: Callable[[str], list[str]], line: str, offered: list[str]):
    assert in_bash(line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_recsmith(run: Callable[..., Any], shell: str):
    done = run("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_RECSMITH_COMPLETE={shell}_complete" in done.out


def test_the_names_that_are_offered_exist():
    from recsmith.reports.catalogue import cost_models
    from recsmith.workloads.optimizers import OPTIMIZERS

    assert set(completion.COST_MODELS) == {each.name for each in cost_models()} - {"step_time"}
    assert set(completion.OPTIMIZERS) == set(OPTIMIZERS)


def test_a_file_is_offered_wherever_a_command_names_one():
    """Every argument that is no choice, and every option whose help calls it a file or a plan."""
    context, found = click.Context(app), 0
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            named = isinstance(parameter, click.Option) and parameter.metavar in ("FILE", "PLAN", "FOLDER", "OTHER")
            if named and not isinstance(parameter.type, click.Choice | click.Path):
                offer = completion.offered_of(parameter)
                assert offer is not None, (name, parameter.name)
                assert completion.FILES in offer("")
                found += 1
    assert found > 20


def test_a_shell_does_not_wait(tmp_path: Path):
    """CPU seconds of an answer: no more than of `--help`, which imports nothing heavy."""

    def seconds(*words: str, **environment: str) -> float:
        begun = time.monotonic()
        used = os.times()
        subprocess.run([sys.executable, "-m", "recsmith", *words], env={**os.environ, **environment}, check=False,
                       capture_output=True)  # fmt: skip
        now = os.times()
        assert time.monotonic() > begun
        return now.children_user + now.children_system - used.children_user - used.children_system

    words = {"COMP_WORDS": "recsmith plan w --planner a", "COMP_CWORD": "4", "_RECSMITH_COMPLETE": "bash_complete"}
    least = min(seconds("--help") for _ in range(3))
    assert min(seconds(**words) for _ in range(3)) < 3 * least + 0.2


# --- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["plan"], ["data", "check"], ["help"], ["watch"], ["bench", "sharding"]])
def test_help_says_what_the_option_says(run: Callable[..., Any], words: list[str]):
    if words and words[0] not in COMMANDS:
        pytest.skip("a system that is not here")
    said = run("help", *words)
    assert (said.code, said.err) == (0, "")
    assert said.out == run(*words, "--help").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["paln"], "there is no command 'paln'; did you mean 'plan'?"),
        (["plan", "x"], "recsmith plan has no commands of its own; leave 'x' out"),
        (["data", "x"], "recsmith data has no command 'x'; it has "),
    ],
)
def test_help_of_what_is_not_there_is_refused(run: Callable[..., Any], words: list[str], message: str):
    done = run("help", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
