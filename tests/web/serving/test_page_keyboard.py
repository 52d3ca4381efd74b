"""The page by keyboard alone: what is drawn anew keeps the focus and what was opened, and wrong numbers are said."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the page needs uvicorn")
pytest.importorskip("httpx", reason="the tests speak to it by httpx")
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

from playwright.sync_api import expect
from support.build import table, workload
from support.serving import Served, serving

import recsmith

expect.set_options(timeout=180_000)  # a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that trains one sample a device, another one, and a file that is cut."""
    folder = tmp_path_factory.mktemp("keys")
    work = workload(table("a"), table("b", rows=5000), batch_size=1)
    for name, planner in (("first", "size_greedy"), ("second", "cost_greedy")):
        recsmith.save_plan(recsmith.plan(work, "h100:2", planner=planner).plan, folder / f"{name}.json")
    (folder / "cut.json").write_text('{"schema": "recsmith/workload/1"')
    (folder / "clicks.csv").write_text("name,num_embeddings,embedding_dim,pooling_factor\na,100,16,2\n")
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving("--memory", str(folder / "first.json"), str(folder / "second.json")) as found:
        yield found


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made, said = context.new_page(), list[str]()
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(served.address)
    made.locator("#plan").wait_for()
    yield made
    assert said == []
    context.close()


def here(page: Any, view: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/{view}")


def options(page: Any) -> Any:
    return page.locator("details", has_text="More options")


def test_the_first_page_is_not_drawn_again_for_another_way_to_write_its_address(page: Any):
    options(page).locator("summary").click()
    page.evaluate("document.querySelector('#plan').dataset.old = 'yes'")
    here(page, "")
    page.wait_for_timeout(300)
    expect(page.locator("#plan")).to_have_attribute("data-old", "yes")
    expect(options(page)).to_have_attribute("open", "")


def test_options_stay_open_after_a_file_an_error_and_another_page(page: Any, folder: Path):
    options(page).locator("summary").click()
    files = page.locator("input[type=file]")
    files.set_input_files(folder / "cut.json")
    expect(page.locator("#read-as")).to_contain_text("is not JSON")
    expect(options(page)).to_have_attribute("open", "")
    files.set_input_files(folder / "clicks.csv")
    expect(page.locator("#read-as .facts")).to_contain_text("1 table")
    page.get_by_label("Seed").fill("-1")
    page.locator("#plan").click()
    expect(page.locator(".go .error")).to_contain_text("seed is -1; seeds are whole numbers from 0")
    assert "line 1" not in page.locator(".go .error").inner_text()  # a form has no lines
    here(page, "compare/")
    page.get_by_role("heading", name="Your plans").wait_for()
    here(page, "")
    expect(options(page)).to_have_attribute("open", "")
    expect(page.get_by_label("Seed")).to_have_value("-1")


@pytest.mark.parametrize("name", ["Workload", "Device", "Devices in a host", "Hosts"])
def test_arrows_change_a_field_again_and_again(page: Any, name: str):
    field = page.get_by_label(name, exact=True)
    field.focus()
    seen = [field.input_value()]
    for _ in range(2):
        page.keyboard.press("ArrowUp" if name == "Hosts" else "ArrowDown")
        expect(field).not_to_have_value(seen[-1])
        expect(field).to_be_focused()
        seen.append(field.input_value())
    assert len(set(seen)) == 3


def test_tab_goes_on_to_the_next_field_and_devices_are_whole(page: Any):
    page.get_by_label("Devices in a host").fill("2.6")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Hosts")).to_be_focused()
    expect(page.get_by_label("Devices in a host")).to_have_value("3")
    expect(page.locator("section", has=page.locator("#step-2")).locator(".note")).to_contain_text("3 devices")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("0", "batch_size is 0; it must be at least 1"),
        ("2.5", "batch_size is 2.5"),
        ("-", "Samples per device and step is not a number"),
    ],
)
def test_a_wrong_batch_is_said_and_not_left_out(page: Any, typed: str, said: str):
    page.get_by_label("Samples per device and step").press_sequentially(typed)
    page.locator("#plan").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".go .error")).to_contain_text(said)


def test_a_file_that_is_told_more_keeps_the_focus(page: Any, folder: Path):
    page.locator("input[type=file]").set_input_files(folder / "clicks.csv")
    chosen = page.get_by_label("Optimizer", exact=True)
    chosen.focus()
    chosen.select_option("adam")
    expect(page.locator("#read-as .facts")).to_contain_text("adam")
    expect(chosen).to_be_focused()


def test_plans_are_ticked_and_deleted_one_after_the_other(page: Any):
    here(page, "compare/")
    for name in ("first.json", "second.json"):
        box = page.get_by_role("checkbox", name=f"Compare {name}")
        box.focus()
        page.keyboard.press("Space")
        expect(box).to_be_checked()
        expect(box).to_be_focused()
    expect(page.locator("#comparison")).to_contain_text("first.json")
    expect(page.get_by_role("checkbox", name="Compare second.json")).to_be_focused()


def test_undo_keeps_the_focus_and_what_if_of_one_sample_has_no_batch_of_none(page: Any):
    here(page, "compare/")
    page.get_by_role("link", name="first.json").first.click()
    block = page.locator(".device .block").first
    block.wait_for()
    for _ in range(2):
        block.focus()
        page.keyboard.press("Alt+ArrowRight")
        page.wait_for_timeout(50)
    expect(page.locator("#undo")).to_be_enabled()
    page.locator("#undo").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#undo, #redo").locator(":scope:focus")).to_have_count(1)
    page.locator("#reset, #forget").first.click()
    knob = page.get_by_label("Samples per device").first
    knob.focus()
    page.keyboard.press("Home")
    expect(knob).to_have_attribute("aria-valuetext", "1")
    expect(knob).to_have_attribute("max", "2")


def test_devices_of_a_rule_are_numbers_and_the_focus_outlives_the_last_rule(page: Any):
    here(page, "compare/")
    page.get_by_role("link", name="first.json").first.click()
    rules = page.locator("section[aria-labelledby=rules]")
    for typed, count in (("0,,1", 0), ("1e0", 0), ("0, 1", 1)):
        rules.get_by_label("Tables").fill("a")
        rules.get_by_label("Devices").fill(typed)
        page.locator("#add-rule").click()
        if not count:
            expect(rules.locator(".error")).not_to_be_empty()
        expect(rules.get_by_role("button", name="Remove the rule")).to_have_count(count)
    rules.get_by_role("button", name="Remove the rule").focus()
    page.keyboard.press("Enter")
    expect(rules.get_by_label("Tables")).to_be_focused()


def test_a_gap_that_is_a_rounding_is_none(page: Any, folder: Path):
    raw = json.loads((folder / "first.json").read_text())
    raw["bound"]["value_s"] = raw["cost"]["total_s"] / (1 + 1e-12)
    raw["gap"] = 1e-12
    (folder / "best.json").write_text(json.dumps(raw))
    page.locator("input[type=file]").set_input_files(folder / "best.json")
    expect(page.locator(".figures").first).to_contain_text("Above the bound0 %")
