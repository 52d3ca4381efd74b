"""Every `recsmith` command that a page shows has the subcommands, options and values that RecSmith takes today."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from recsmith.cli.app import app
from recsmith.errors import RecSmithError

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(recsmith [^`]+)`")
DENIED = {"recsmith feed --engine ray"}  # a page says that there is no such command
OLD = {"CHANGELOG.md"}  # what was true of older versions


def shown(text: str) -> Iterator[str]:
    """The commands of a page's blocks, but for those that are run (`$`), and those in its text that have an option."""
    blocks = BLOCK.findall(text)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith("$ "):
                parts = (part.strip() for part in re.split(r"\||&&", line))
                yield from (part for part in parts if part.startswith("recsmith ") and " $" not in part)
    for command in INLINE.findall(BLOCK.sub("", text)):
        command = " ".join(command.split())
        if (
            re.match(r"recsmith [a-z].* --", command)
            and "..." not in command
            and "[" not in command
            and command not in DENIED
        ):
            yield command


def parsed(words: list[str]) -> None:
    """Raises what click raises where a word is not taken; runs nothing."""
    command, context = app, click.Context(app)
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, parent=context, info_name=name)
    if not {"--help", "-h"} & set(words):
        command.make_context(command.name, list(words), parent=context)


def commands() -> Iterator[tuple[str, str]]:
    """Pages and what they show."""
    for page in (page for page in PAGES if page.name not in OLD):
        for command in dict.fromkeys(shown(page.read_text("utf-8"))):
            yield str(page.relative_to(ROOT)), command


COMMANDS = list(commands())


def test_commands_are_found():
    assert len(COMMANDS) > 150


@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS}))
def test_commands_are_taken(page: str):
    wrong: list[str] = []
    for _, command in (each for each in COMMANDS if each[0] == page):
        try:
            parsed(shlex.split(command, comments=True)[1:])
        except (click.MissingParameter, click.BadOptionUsage):
            pass  # a part of a command, within a sentence
        except (click.ClickException, RecSmithError) as error:
            said = error.format_message() if isinstance(error, click.ClickException) else error
            wrong.append(f"{command}: {said}")
    assert wrong == []
