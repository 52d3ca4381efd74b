"""The page in a real browser: plan, progress, cancel, drag, keys, constraints, compare, download, dark, large."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the page needs uvicorn")
pytest.importorskip("httpx", reason="the tests speak to it by httpx")
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

from playwright.sync_api import expect
from support.serving import Served, serving

import recsmith
from recsmith.plans.files import plan_from_raw

expect.set_options(timeout=180_000)  # a busy machine
HOSTILE = "<img src=x onerror=document.title='hacked'>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a plan of 2,000 tables, and one whose names are markup."""
    folder = tmp_path_factory.mktemp("page")
    many = recsmith.sample_workload(2000, 0, max_bytes=2**32)
    recsmith.save_plan(recsmith.plan(many, "h100:8x4", planner="size_greedy").plan, folder / "many.json")
    few = {
        "schema": "recsmith/workload/1", "batch_size": 64, "optimizer": "sgd", "name": HOSTILE,
        "tables": [{"name": f"{HOSTILE}{i}", "num_embeddings": 10**6, "embedding_dim": 32, "pooling_factor": 2}
                   for i in range(3)],
    }  # fmt: skip
    (folder / "few.json").write_text(json.dumps(few))
    hostile = recsmith.plan(folder / "few.json", "h100:2", planner="size_greedy").plan
    recsmith.save_plan(hostile, folder / f"{HOSTILE.replace('/', '')}.json")
    with serving("--memory", *map(str, sorted(folder.glob("*.json")))) as found:
        yield found


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    """The page, opened by the printed address; anything that the console says of errors fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made, said = context.new_page(), list[str]()
    made.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(served.address)
    made.wait_for_selector("h1")
    yield made
    assert [each for each in said if "409" not in each] == []
    context.close()


def plan_dlrm(page: Any) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/")
    page.locator("#plan").wait_for()
    page.get_by_label("Search for at most").select_option("5")
    page.locator("#plan").click()


def open_plan(page: Any, name: str) -> None:
    page.get_by_role("link", name=name).first.click()
    page.locator(".device .block").first.wait_for()


def test_a_stranger_plans_and_downloads(page: Any, tmp_path: Path):
    assert page.get_by_role("heading", level=1).inner_text() == "Where should every embedding table go?"
    plan_dlrm(page)
    page.wait_for_url("**/#/search/**")
    expect(page.locator(".figures")).to_contain_text("ms")
    assert "Best step" in page.locator(".figures").inner_text()
    page.locator("#stop").click()
    page.wait_for_url("**/#/plan/**")
    page.locator(".device .block").first.wait_for()
    assert page.title() == "dlrm-v2 on h100:8 · RecSmith"
    with page.expect_download() as coming:
        page.locator("#download-plan").click()
    raw = json.loads(Path(coming.value.path()).read_text())
    assert len(plan_from_raw(raw, "download").placements) == 26
    with page.expect_download() as coming:
        page.locator("#download-report").click()
    assert coming.value.suggested_filename.endswith(".html")
    page.reload()  # the address is a deep link
    page.locator(".device .block").first.wait_for()
    drag_and_keep(page)
    constrain(page)
    compare(page)


# A block whose table has no piece on the next device, nor on one further away: where it may go, whatever the plan.
MOVABLE = """() => {
  const blocks = [...document.querySelectorAll('.device .block:not(.kind-row_wise)')];
  const table = (block) => block.dataset.key.slice(block.dataset.key.indexOf(':'));
  const rank = (block) => Number(block.closest('.device').dataset.rank);
  for (const block of blocks) {
    const taken = new Set(blocks.filter((each) => table(each) === table(block)).map(rank));
    const free = [...Array(8).keys()].filter((each) => !taken.has(each));
    const next = (rank(block) + 1) % 8;
    const far = free.find((each) => each !== next);
    if (free.includes(next) && far !== undefined) return [block.dataset.key, rank(block), next, far];
  }
}"""


def drag_and_keep(page: Any) -> None:
    """Drag a block of a device to another; cost and memory follow; undo takes it back."""
    figures = page.locator(".figures")
    before = figures.text_content()
    key, home, following, far = page.evaluate(MOVABLE)

    def on(rank: int) -> Any:
        return page.locator(f".device[data-rank='{rank}'] .block[data-key='{key}']")

    target = page.locator(f".device[data-rank='{far}']")
    on(home).hover()
    page.mouse.down()
    target.hover()
    target.hover()  # the first one begins the drag
    told = target.locator(".would")
    expect(told).to_contain_text("a step of")
    step = re.search(r"a step of ([\d.]+ \S+)", told.inner_text())
    page.mouse.up()
    on(far).wait_for()
    expect(told).to_have_count(0)
    expect(figures).not_to_have_text(before)
    assert step is not None
    assert step[1] in (figures.text_content() or "")  # what was told while it was dragged is what it takes
    assert "a step" in page.locator("#effect").inner_text()
    page.locator("#undo").click()
    expect(figures).to_have_text(before)
    on(home).focus()
    page.keyboard.press("Alt+ArrowRight")
    on(following).wait_for()
    page.locator("#keep").click()
    page.get_by_role("heading", name="by hand").wait_for()


def constrain(page: Any) -> None:
    """Keep a table on one device, and plan again."""
    page.get_by_role("combobox", name="Tables").fill("cat_1")
    page.get_by_role("textbox", name="Devices").fill("2")
    page.locator("#add-rule").click()
    assert "cat_1: only on device 2" in page.locator(".rules").inner_text()
    page.locator("#replan").click()
    page.wait_for_url("**/#/search/**")
    expect(page.locator(".figures")).to_contain_text("ms")
    page.locator("#stop").click()
    page.wait_for_url("**/#/plan/**")
    page.locator(".device .block").first.wait_for()
    ranks = page.evaluate(
        "[...document.querySelectorAll('.block')].filter(b => b.dataset.key.endsWith(':cat_1'))"
        ".map(b => b.closest('.device').dataset.rank)"
    )
    assert set(ranks) <= {"2"}
    assert "cat_1: only on device 2" in page.locator(".rules").inner_text()


def compare(page: Any) -> None:
    """Tick two plans and see them side by side."""
    page.get_by_role("link", name="Your plans").click()
    page.get_by_role("checkbox", name="Compare dlrm-v2 on h100:8", exact=True).check()
    page.wait_for_url("**/#/compare/plan-*")
    page.get_by_role("checkbox", name="Compare dlrm-v2 on h100:8, by hand", exact=True).check()
    page.locator("#comparison").wait_for()
    assert "1 table changes, 25 stay" in page.locator("main").inner_text()


def test_a_search_is_cancelled(page: Any):
    page.get_by_label("Workload").select_option("nvidia-jumbo")
    page.get_by_label("Hosts").fill("8")
    page.get_by_label("Hosts").press("Tab")
    page.locator("#plan").click()
    page.locator("#cancel").click()
    page.get_by_role("heading", name="Cancelled").wait_for()


def test_names_are_text(page: Any):
    open_plan(page, f"{HOSTILE.replace('/', '')}.json")
    assert page.locator("main img").count() == 0
    assert page.title() != "hacked"
    assert HOSTILE in page.locator(".tables").inner_text()


def test_two_thousand_tables_in_the_dark_on_a_narrow_window(page: Any):
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    open_plan(page, "many.json")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
    page.get_by_label("Search").fill("table_1999")
    assert page.locator(".tables tbody tr").count() == 1
    slider = page.get_by_label("Samples per device")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#effect")).to_contain_text("+")
