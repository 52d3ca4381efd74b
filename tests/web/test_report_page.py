"""The report as people use it, in Chromium: it draws, sorts, finds, prints, and asks no network."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.build import cluster, made_plan, placed, plan_of, table, workload

from recsmith import load_cluster, plan
from recsmith.analyses.cache_curve import SHARES
from recsmith.plans import Plan
from recsmith.units import format_time
from recsmith.web.report import html_of, report
from recsmith.web.report_data import report_data

AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
EVIL = "</script><img src=x onerror=document.title='hacked'>{b|bold}"
WIDE, NARROW = 1200, 360
UNIT = re.compile(r" (µs|ms|s|B|[KMGT]iB)$")
PAPER = 718  # CSS pixels between the margins of an A4 page


@pytest.fixture(scope="module")
def dlrm() -> tuple[Plan, Plan]:
    """A plan, and another for the same tables."""
    first, other = (
        plan("dlrm-v2", "h100:2x2", planner=name, cost_model="analytic").plan for name in ("cost_greedy", "size_greedy")
    )
    return first, other


@pytest.fixture(scope="module")
def file(dlrm: tuple[Plan, Plan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "plan.html"
    report(dlrm[0], path, against=dlrm[1], advice=True)
    return path


@pytest.fixture
def opened(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function that opens a file; the test fails over any error, refused load or request but for the file itself."""
    context = browser.new_context(viewport={"width": WIDE, "height": 900}, offline=True)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith("file:") else None)

    def open_file(path: Path, **media: str) -> Any:
        page.emulate_media(**media)
        page.goto(path.as_uri())
        page.wait_for_selector("[data-drawn]", state="attached")
        return page

    yield open_file
    context.close()
    assert wrong == []


def drawn(page: Any) -> list[int]:
    """How many colours each chart shows; 1 is an empty canvas."""
    return page.evaluate(
        """[...document.querySelectorAll('canvas')].map((canvas) => {
            const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(all.data.buffer).filter((_, i) => i % 7 === 0)).size; })"""
    )


def unfold(page: Any, section: str) -> None:
    """Open a section's table of numbers, and wait for its rows: a browser says only after the click that it is open."""
    page.click(f"{section} summary")
    page.wait_for_selector(f"{section} details tbody tr")


def test_it_says_first_what_the_plan_costs_and_how_far_it_is_from_the_best(
    opened: Any, file: Path, dlrm: tuple[Plan, Plan]
):
    page = opened(file)
    assert " a step, at most " in page.inner_text("h1")
    words = page.inner_text(".headline")
    assert all(
        word in words for word in ("Step", "Above the proven bound", "What binds", "Fullest device", "26 embedding")
    )
    assert len(drawn(page)) == 5  # both plans of the difference, time, memory, shards
    assert min(drawn(page)) > 10
    assert "dlrm-v2" in page.inner_text("#changes h2")
    advised = page.inner_text("#advice")
    assert " of the device time of a sample" in advised
    assert "1.751 ms" not in advised  # gains are of the plan of the report, not of the one that `plan` makes
    assert f"{format_time(dlrm[0].cost.step_s)} -> " in advised


def test_shards_are_found_sorted_and_chosen_by_keyboard(opened: Any, file: Path):
    page = opened(file)
    grid = page.locator("#shards .grid")
    page.fill("#shard-search", "cat_1")
    names = set(grid.locator("tbody th").all_inner_texts())
    assert len(names) > 1
    assert all(name.startswith("cat_1") for name in names)
    page.fill("#shard-search", "cat_12")
    assert "of" in page.inner_text("#shards .count")
    page.fill("#shard-search", "")
    head = grid.locator("thead button", has_text="Table").first
    head.focus()
    page.keyboard.press("Enter")
    assert grid.locator("thead th").first.get_attribute("aria-sort") == "ascending"
    assert grid.locator("tbody th").first.inner_text() == "cat_0"
    grid.locator("tbody button").first.focus()
    page.keyboard.press("Enter")
    assert "cat_0" in page.inner_text("#shards .chosen")
    assert grid.locator("tr.marked").count() >= 1
    assert page.evaluate("document.activeElement.textContent") == "cat_0"
    page.fill("#shard-device", "0")
    everywhere = grid.locator("tbody tr[aria-rowindex] td:nth-child(5)").all_inner_texts()
    assert everywhere
    assert all(words.startswith("0") for words in everywhere)


def test_a_column_of_times_or_sizes_has_one_unit(opened: Any, file: Path):
    page = opened(file)
    unfold(page, "#time")
    unfold(page, "#memory")
    found = page.evaluate(
        """['#time', '#memory', '#shards'].flatMap((part) => {
            const grid = document.querySelector(`${part} .grid`);
            return [...grid.querySelectorAll('thead th')].map((_, i) =>
              [...grid.querySelectorAll('tbody tr[aria-rowindex]')].map((row) => row.children[i].textContent)); })"""
    )
    units = [{cell.split()[-1] for cell in cells} for cells in found if any(UNIT.search(cell) for cell in cells)]
    assert len(units) > 9  # five parts of a step, some of memory, weights and costs of shards
    assert [each for each in units if len(each) > 1] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_clean_for_screen_readers(opened: Any, file: Path, scheme: str):
    if not AXE.exists():
        pytest.skip("axe-core is not installed; `npm ci` in web/ installs it")
    page = opened(file, color_scheme=scheme)
    page.click("#shards .grid button.link >> nth=0")
    unfold(page, "#time")
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((all) => all.violations)")
    assert [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found] == []


def test_caches_have_a_curve_where_the_plan_is_a_point(opened: Any, tmp_path: Path):
    cached = placed("a", "table_wise", [0], kernel="fused_uvm_caching")
    tables = workload(table("a", 50_000, 16), table("b", 10, 16))
    given = plan_of(tables, load_cluster("h100:1"), cached, placed("b", "table_wise", [0]))
    (tmp_path / "plan.html").write_text(html_of(report_data(given)))
    page = opened(tmp_path / "plan.html")
    assert "of the lookups of 1 table hit caches of" in page.inner_text("#caches .lead")
    unfold(page, "#caches")
    assert page.locator("#caches tbody tr").count() == len(SHARES)
    assert min(drawn(page)) > 10


def test_it_fits_a_telephone_and_paper_and_turns_dark(opened: Any, file: Path):
    page = opened(file)
    page.set_viewport_size({"width": NARROW, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Colours").click()
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert min(drawn(page)) > 10
    assert len(page.pdf()) > 20_000
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('header')).display") == "none"


def test_every_device_of_two_plans_is_on_paper(opened: Any, file: Path):
    page = opened(file)
    page.set_viewport_size({"width": PAPER, "height": 1000})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    cut = """[...document.querySelectorAll('#changes .pair .chart')].map((chart) =>
        chart.querySelector('canvas').getBoundingClientRect().right - chart.getBoundingClientRect().right)"""
    beyond = page.evaluate(cut)
    assert len(beyond) == 2
    assert max(beyond) <= 1


def test_the_licences_of_what_draws_are_in_the_file(file: Path):
    text = file.read_text("utf-8")
    for words in ("Apache ECharts", "Apache License", "Redistributions of source code must retain"):
        assert words in text


def test_names_are_text(opened: Any, tmp_path: Path):
    evil = plan_of(workload(table(EVIL)), cluster(), placed(EVIL, "table_wise", [0]))
    shown = report_data(evil, EVIL)
    control = "a\x1b[31mb\u202ec"
    shown = replace(shown, tables=tuple(replace(each, name=f"{each.name}{control}") for each in shown.tables))
    (tmp_path / "evil.html").write_text(html_of(shown), "utf-8")
    page = opened(tmp_path / "evil.html")
    assert page.locator("img").count() == 0
    assert page.title() == f"{EVIL}: sharding plan"
    name = page.inner_text("#shards .grid tbody th")
    assert name == EVIL + r"a\x1b[31mb\u202ec"
    page.locator("#shards .chart").scroll_into_view_if_needed()
    box = page.locator("#shards .chart").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.28, box["y"] + box["height"] * 0.6)  # over the shard of device 0
    page.wait_for_selector("#shards .hint", state="visible")
    assert EVIL in page.inner_text("#shards .hint")
    assert page.title() == f"{EVIL}: sharding plan"


def test_many_shards_are_drawn_as_they_come_into_view(opened: Any, tmp_path: Path):
    tables = [table(f"t{i:04}", 100 + i, 32) for i in range(2000)]
    many = plan_of(
        workload(*tables),
        cluster(16, 8),
        *(placed(each.name, "table_wise", [i % 128]) for i, each in enumerate(tables)),
    )
    (tmp_path / "many.html").write_text(html_of(report_data(many)), "utf-8")
    assert (tmp_path / "many.html").stat().st_size < 5e6
    page = opened(tmp_path / "many.html")
    assert page.inner_text("#shards .count") == "2,000 rows"
    assert page.locator("#shards .grid tbody tr").count() < 60
    page.evaluate("const view = document.querySelector('#shards .window'); view.scrollTop = view.scrollHeight")
    page.wait_for_selector("#shards tr[aria-rowindex='2001']")
    assert page.locator("#shards tr[aria-rowindex='2001'] th").inner_text() == "t0000"  # the smallest


def test_a_plan_without_a_bound_says_so(opened: Any, tmp_path: Path):
    (tmp_path / "plain.html").write_text(html_of(report_data(made_plan())), "utf-8")
    page = opened(tmp_path / "plain.html")
    assert page.inner_text("h1") == "1 s a step"
    assert "Nothing is proved" in page.inner_text("#bound")
