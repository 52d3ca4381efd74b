"""Addresses of pages that were merged into others lead to the headings that have their text now."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"\]\(([^)\s:]*?)(#[^)\s]*)?\)")


@pytest.fixture(scope="module")
def moved() -> dict[str, str]:
    sys.path.insert(0, str(DOCS))
    try:
        return import_module("moved").MOVED
    finally:
        sys.path.remove(str(DOCS))


def anchors(page: Path) -> set[str]:
    """The names that headings of a page have in links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each) for each in re.findall(r"^#+ (.*)", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in plain}


def test_each_old_address_leads_to_a_heading(moved: dict[str, str]) -> None:
    assert len(moved) > 40
    for old, new in moved.items():
        page, _, section = new.partition("#")
        assert not (DOCS / f"{old}.md").exists(), f"{old} is a page again; take it from docs/moved.py"
        assert section in anchors(DOCS / f"{page}.md"), f"{old}: no heading {section} on {page}"


def test_the_site_has_a_page_at_each(moved: dict[str, str], tmp_path: Path) -> None:
    sys.modules["moved"].write_forwards(tmp_path)
    for old, new in moved.items():
        text = (tmp_path / f"{old}.html").read_text("utf-8")
        (target,) = set(re.findall(r'(?:url=|href=")([^"#]+)#', text))
        there = (tmp_path / old).parent.joinpath(target).resolve().relative_to(tmp_path.resolve())
        assert str(there) == new.partition("#")[0] + ".html"


def test_links_between_pages_lead_to_headings() -> None:
    known = {page: anchors(page) for page in DOCS.rglob("*.md")}
    checked = 0
    for page in known:
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for path, anchor in LINK.findall(text):
            target = (page.parent / path).resolve() if path else page
            if not path and not anchor:
                continue
            assert target.exists(), f"{page.name}: {path}"
            if anchor and target in known:
                assert anchor[1:] in known[target], f"{page.name}: {path}{anchor}"
                checked += 1
    assert checked > 200


def test_pages_that_are_read_are_few() -> None:
    pages = [page for folder in ("", "benchmarks") for page in (DOCS / folder).glob("*.md")]
    assert len(pages) <= 64


def test_no_page_takes_an_address_of_the_site_itself() -> None:
    pages = {page.stem for page in DOCS.glob("*.md")}
    assert not pages & {"search", "genindex", "py-modindex"}
    assert re.search(r"^# .*\bFAQ\b", (DOCS / "faq.md").read_text("utf-8"))  # the word that people search for


NO_TASKS = {
    "index", "install", "tutorial", "from-torchrec", "what-pays", "how-it-works", "faq", "glossary", "extending",
    "architecture", "reliability", "contributing", "changes",
}  # fmt: skip


@pytest.mark.parametrize("page", sorted({page.stem for page in DOCS.glob("*.md")} - NO_TASKS))
def test_a_task_begins_with_its_command_and_when_not_to_use_it(page: str) -> None:
    head = (DOCS / f"{page}.md").read_text("utf-8").partition("\n## ")[0]
    title, sentence, *_ = head.split("\n\n")
    assert title.startswith("# ")
    assert not sentence.startswith(("```", "|", "- ", "!")), "the first thing is a sentence that says what is done"
    assert "```" in head, "no command, file or code before the first section"
    assert "**When not to use " in head
