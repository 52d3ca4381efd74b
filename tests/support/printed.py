"""What a report prints."""

from typing import Any

import pytest

from recsmith.reports.layout import show


def text_of(renderable: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """A report as it is printed where no terminal is."""
    show(renderable)
    return capsys.readouterr().out


def line_of(name: str, text: str) -> str:
    """The line that begins with a word."""
    return next(line for line in text.splitlines() if line.split()[:1] == [name])
