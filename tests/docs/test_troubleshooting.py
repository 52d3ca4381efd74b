"""The page of questions and troubleshooting quotes messages that RecSmith prints."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text("utf-8")
QUOTED = sorted(
    {
        part.strip(" .;,")
        for heading in re.findall(r"^\*\*(.+?)\*\*", PAGE, re.MULTILINE)
        for message in re.findall(r"`(.+?)`", heading)
        for part in message.split("...")
        if len(part.strip(" .;,")) > 3
    }
)
ELSEWHERE = {"command not found: recsmith", "error: externally-managed-environment"}  # of the shell, of pip


def sources() -> str:
    """All text between quotes, joined as Python joins it."""
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    return re.sub(r'"\s*\n\s*f?"', "", text)


TEXT = sources()


def test_messages_are_found():
    assert len(QUOTED) > 15


@pytest.mark.parametrize("words", QUOTED)
def test_a_quoted_message_is_one_of_the_sources(words: str):
    assert words in ELSEWHERE or words in TEXT
