"""The page on a folder, in a real browser: plans that stay, files that come in anywhere, keys, a map that folds."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the page needs uvicorn")
pytest.importorskip("httpx", reason="the tests speak to it by httpx")
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

from playwright.sync_api import expect
from support.planner_logs import bare
from support.serving import Served, serving

import recsmith
from recsmith.analyses.one_table import table_cost
from recsmith.units import format_time

AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
expect.set_options(timeout=180_000)  # a busy machine
CSV = "name,num_embeddings,embedding_dim,pooling_factor\n" + "".join(
    f"t{i},{10_000 * (i + 1)},32,0.25\n" for i in range(9)
)
DROP = """([name, text, selector]) => {
  const data = new DataTransfer(), target = document.querySelector(selector);
  for (const [file, content] of name.map((each, i) => [each, text[i]])) data.items.add(new File([content], file));
  const box = target.getBoundingClientRect();
  const at = {bubbles: true, cancelable: true, dataTransfer: data, clientX: box.left + 40, clientY: box.top + 10};
  for (const kind of ['dragover', 'drop']) target.dispatchEvent(new DragEvent(kind, at));
}"""
PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData('text/plain', text);
  document.body.dispatchEvent(new ClipboardEvent('paste', {bubbles: true, cancelable: true, clipboardData: data}));
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the command line has kept plans: of few tables, and of 32 devices."""
    path = tmp_path_factory.mktemp("plans")
    few = recsmith.sample_workload(12, 0, max_bytes=2**28)
    recsmith.save_plan(recsmith.plan(few, "h100:4", planner="size_greedy").plan, path / "small.json")
    recsmith.save_plan(recsmith.plan(few, "h100:2", planner="size_greedy").plan, path / "two devices.json")
    many = recsmith.sample_workload(60, 0, max_bytes=2**28)
    recsmith.save_plan(recsmith.plan(many, "h100:8x4", planner="size_greedy").plan, path / "hosts.json")
    return path


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(str(folder)) as found:
        yield found


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    yield from opened(browser, served)


def opened(browser: Any, served: Served) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made, said = context.new_page(), list[str]()
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(served.address)
    made.wait_for_selector("h1")
    yield made
    assert said == []
    context.close()


def go(page: Any, where: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#{where}")


def open_plan(page: Any, key: str) -> None:
    go(page, f"/plan/{key}")
    page.locator(".device .block").first.wait_for()


def places(page: Any) -> list[list[str]]:
    return page.evaluate("""[...document.querySelectorAll('.device')]
      .map(d => [...d.querySelectorAll('.block')].map(b => b.dataset.key).sort())""")


def test_a_plan_its_address_and_moves_by_hand_outlive_a_killed_server(browser: Any, tmp_path: Path):
    few = recsmith.sample_workload(6, 0, max_bytes=2**28)
    recsmith.save_plan(recsmith.plan(few, "h100:2", planner="size_greedy").plan, tmp_path / "mine.json")
    with serving(str(tmp_path)) as served:
        for page in opened(browser, served):
            open_plan(page, "mine")
            before = places(page)
            for _ in range(2):
                with page.expect_response("**/draft"):
                    page.locator(".device .block").first.focus()
                    page.keyboard.press("Alt+ArrowRight")
            with page.expect_response("**/draft"):
                page.locator("#undo").click()
            expect(page.locator("#redo")).to_be_enabled()
            moved = places(page)
            assert moved != before
        served.process.kill()  # -9
    with serving(str(tmp_path)) as served:
        for page in opened(browser, served):
            open_plan(page, "mine")
            assert places(page) == moved
            page.keyboard.press("Control+Shift+z")
            expect(page.locator("#effect")).to_contain_text("2 moves by hand")
            page.keyboard.press("Control+z")
            page.keyboard.press("Control+z")
            expect(page.locator("#undo")).to_be_disabled()
            assert places(page) == before
            page.locator("#forget").click()
            expect(page.locator("#undo")).to_be_hidden()


def test_two_windows_do_not_overwrite_each_others_moves(page: Any):
    open_plan(page, "small")
    other = page.context.new_page()
    other.goto(page.url)
    other.locator(".device .block").first.wait_for()
    with other.expect_response("**/draft") as first:
        other.locator(".device .block").first.focus()
        other.keyboard.press("Alt+ArrowRight")
    page.locator(".device .block").last.focus()
    page.keyboard.press("Alt+ArrowLeft")
    page.get_by_text("changed by hand in another window").wait_for()
    page.locator("#keep").click()  # what is seen here is not lost either
    page.get_by_role("heading", name="small, by hand").wait_for()
    kept = page.evaluate("fetch('/api/plans/small').then(r => r.json()).then(p => p.draft)")
    assert kept == first.value.json()
    other.locator("#reset").click()
    other.locator("#forget").click()
    expect(other.locator("#undo")).to_be_hidden()


def test_plans_are_named_noted_found_copied_deleted_and_brought_back(page: Any, folder: Path):
    open_plan(page, key_of(page, "two devices"))
    here = page.url
    page.locator("#rename").click()
    page.get_by_label("Name of the plan").fill("the one we run")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="the one we run").wait_for()
    page.locator("#edit-note").click()
    page.get_by_label("Note").fill("since May,\non both hosts")
    page.locator("#save-note").click()
    expect(page.locator(".said")).to_contain_text("on both hosts")
    page.locator("#duplicate").click()
    page.get_by_role("heading", name="the one we run, copy").wait_for()
    with page.expect_download() as coming:
        page.locator("#download-plan").click()
    assert coming.value.suggested_filename == "the one we run, copy.json"
    page.locator("#delete").click()
    page.get_by_role("button", name="Undo: the one we run, copy").click()
    page.get_by_role("link", name="the one we run, copy").wait_for()
    page.get_by_role("button", name="Delete the one we run, copy").click()
    expect(page.locator("#deleted")).to_contain_text("Deleted (1)")
    search = page.get_by_label("Search your plans")
    search.fill("hosts MAY")
    expect(page.locator(".plans tbody tr")).to_have_count(1)
    assert "the one we run" in page.locator(".plans tbody").inner_text()
    search.fill("nothing such")
    expect(page.locator("#none")).to_be_visible()
    search.fill("")
    assert str(folder) in page.locator("#folder").inner_text()
    page.goto(here)
    page.reload()
    page.get_by_role("heading", name="the one we run").wait_for()
    assert (folder / "two devices.json").exists()


def key_of(page: Any, name: str) -> str:
    plans = page.evaluate("fetch('/api/kept').then(r => r.json()).then(k => k.plans)")
    return next(each["id"] for each in plans if each["name"] == name)


def test_files_are_dropped_anywhere_and_what_was_assumed_is_asked(page: Any):
    open_plan(page, "small")
    page.evaluate(DROP, [["clicks.csv", "rules.yaml"], [CSV, "schema: recsmith/constraints/1\nrules: []\n"], "#tables"])
    facts = page.locator("#read-as .facts")
    expect(facts).to_have_text("9 tables, fp32 (assumed), sgd (assumed), 8,192 samples a device (assumed)")
    page.get_by_label("Optimizer", exact=True).select_option("adam")
    expect(facts).to_have_text("9 tables, fp32 (assumed), adam (assumed), 8,192 samples a device (assumed)")
    page.get_by_label("Data type of the tables").select_option("fp16")
    expect(facts).to_contain_text("fp16")
    expect(page.get_by_label("Workload").locator("option:checked")).to_contain_text("clicks")
    assert "rules.yaml read as constraints" in page.locator("#read-as").inner_text()
    page.get_by_label("Planner").select_option("cost_greedy")
    page.locator("#plan").click()
    page.wait_for_url("**/#/plan/**")
    shown = page.evaluate("fetch(`/api/plans/${location.hash.split('/')[2]}/file`).then(r => r.json())")
    assert shown["workload"]["optimizer"] == "adam"
    assert {each["data_type"] for each in shown["workload"]["tables"]} == {"fp16"}
    page.get_by_label("Search").fill("t0")
    row = page.locator(".tables tbody tr").first.inner_text().split("\t")
    heads = page.locator(".tables thead th").all_inner_texts()
    assert row[heads.index("Ids per sample")] == "0.25"  # small numbers keep their digits


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_columns_of_other_names_are_asked_for(page: Any, sign: str):
    page.locator("#plan").wait_for()
    head = ["Feature", "owner", "num_ids", "emb_width", "avg_lookups"]
    rows = [head, ["a", "x", "1000", "64", "5"], ["b", "y", "20", "32", "1"]]
    text = "\n".join(sign.join(row) for row in rows)
    page.evaluate(DROP, [["mine.csv"], [text], "#plan"])
    asked = page.locator("#read-as")
    expect(asked).to_contain_text("mine.csv names its columns in its own way. Which is which?")
    assert asked.locator("select").evaluate_all("all => all.map(each => each.value)") == [
        "Feature", "num_ids", "emb_width", "avg_lookups",
    ]  # fmt: skip
    asked.get_by_label("Ids per sample").select_option("")
    page.locator("#read-columns").click()
    expect(asked.get_by_role("alert")).to_have_text("Choose the column of: Ids per sample.")
    asked.get_by_label("Ids per sample").select_option("num_ids")
    page.locator("#read-columns").click()
    expect(asked.get_by_role("alert")).to_contain_text("Two of these are the same column")
    asked.get_by_label("Ids per sample").select_option("avg_lookups")
    page.locator("#read-columns").click()
    expect(page.locator("#read-as .facts")).to_contain_text("2 tables, fp32 (assumed)")
    expect(page.get_by_label("Workload").locator("option:checked")).to_contain_text("mine · 2 tables")


def test_the_costliest_table_is_on_top_of_the_tables_sorted_by_time(page: Any):
    open_plan(page, "small")
    seconds = page.evaluate("fetch('/api/plans/small/seconds').then(r => r.json())")["seconds"]
    table = page.locator(".tables")
    expect(table).not_to_contain_text("…")
    table.get_by_role("button", name="Time").click()
    first = table.locator("tbody tr").first.locator("td").all_inner_texts()
    costliest = max(seconds, key=seconds.get)
    assert first[0] == costliest
    assert first[table.locator("thead th").all_inner_texts().index("Time")] == format_time(seconds[costliest])


def test_a_plan_for_another_number_of_devices_is_named_by_it(page: Any):
    open_plan(page, "small")
    page.get_by_label("Devices", exact=False).and_(page.locator("input[type=range]")).focus()
    page.keyboard.press("ArrowRight")
    page.locator("#replan-whatif").click()
    page.wait_for_url(re.compile("8-devices"))
    expect(page.locator("h1")).to_contain_text("on 8 devices")


def test_a_pasted_log_is_compared_with_a_new_plan(page: Any):
    page.locator("#plan").wait_for()
    page.evaluate(PASTE, bare("mixed"))
    expect(page.locator("#read-as .facts")).to_contain_text("3 tables, fp32 (assumed), sgd (assumed)")
    expect(page.get_by_label("Devices in a host")).to_have_value("4")
    page.get_by_label("Search for at most").select_option("5")
    page.locator(".compare-running").click()
    page.wait_for_url("**/#/compare/**")
    page.locator("#comparison").wait_for()
    heads = page.locator("#comparison thead th").all_inner_texts()
    assert heads[0].split("\n") == ["pasted, running", "the base"]
    assert "planned anew" in heads[1]


def test_tables_and_a_printed_plan_come_in_together(page: Any):
    page.locator("#plan").wait_for()
    printed = {"plan": {"m": {"t0": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1], "shards": [
        {"shard_offsets": [0, 0], "shard_sizes": [10_000, 32], "placement": "rank:1/cuda:1"}]}}}}  # fmt: skip
    page.evaluate(DROP, [["one.csv", "running.json"], ["\n".join(CSV.split("\n")[:2]), json.dumps(printed)], "h1"])
    expect(page.locator("#read-as")).to_contain_text("running.json holds the running plan of 1 table on 2 devices")
    page.locator(".compare-running").click()
    page.wait_for_url("**/#/compare/**")
    expect(page.locator("#comparison thead")).to_contain_text("running, running")


def test_errors_stand_where_the_act_was(page: Any):
    page.locator("#plan").wait_for()
    page.locator("input[type=file]").set_input_files({"name": "bad.json", "mimeType": "", "buffer": b"{"})
    said = page.locator("#read-as .error")
    expect(said).to_contain_text("'bad.json'")
    zone = page.locator(".drop").bounding_box()
    assert 0 <= said.bounding_box()["y"] - (zone["y"] + zone["height"]) < 120
    open_plan(page, "small")
    page.evaluate(DROP, [["worse.json"], ["[1"], "#steps"])
    refused = page.locator(".refused")
    expect(refused).to_contain_text("'worse.json'")
    at, target = refused.bounding_box(), page.locator("#steps").bounding_box()
    assert abs(at["x"] - target["x"]) < 120
    assert abs(at["y"] - target["y"]) < 120
    assert "/plan/small" in page.url


def test_compare_names_its_base_and_what_a_million_samples_cost(page: Any):
    open_plan(page, "small")
    go(page, "/compare/small,hosts")
    page.locator("#comparison").wait_for()
    rows = {row.inner_text().split("\t")[0]: row.inner_text().split("\t")[1:]
            for row in page.locator("#comparison tbody tr").all()}  # fmt: skip
    plans = page.evaluate("fetch('/api/kept').then(r => r.json()).then(k => k.plans)")
    found = {each["id"]: each for each in plans}
    cost = [1e6 * found[key]["total_s"] / found[key]["batch_size"] for key in ("small", "hosts")]
    cells = [cell.replace(",", "") for cell in rows["Device seconds a million samples"]]
    told = [float(each) for cell in cells for each in re.findall(r"^[\d.]+", cell)]
    assert told == pytest.approx(cost, rel=1e-3)
    assert "Samples a second" in rows
    page.get_by_label("Compared with").select_option(label="hosts")
    page.wait_for_url("**/#/compare/hosts,small")
    expect(page.locator("#comparison thead th").first).to_contain_text("the base")


def test_hosts_fold_and_the_map_is_one_stop_of_tab_with_arrows_inside(page: Any):
    open_plan(page, "hosts")
    assert page.locator(".host.folded").count() == 3
    assert page.locator(".device").count() == 8
    page.locator(".host.folded [aria-expanded=false]").first.click()
    expect(page.locator(".host.folded")).to_have_count(2)
    assert page.locator(".device").count() == 16
    assert page.locator(".device-columns").evaluate("each => each.scrollWidth <= each.parentElement.clientWidth")
    assert page.locator(".shardmap .block[tabindex='0']").count() == 1
    page.locator(".shardmap .block[tabindex='0']").focus()
    first = page.evaluate("document.activeElement.closest('.device').dataset.rank")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('.device').dataset.rank") != first
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.classList.contains('block')")
    heights = "[...document.querySelectorAll('.block')].map(b => b.style.height).join()"
    before = page.evaluate(heights)
    page.get_by_label("Blocks as high as their").select_option("seconds")
    until = time.monotonic() + 10  # the page's policy lets nothing be polled inside of it
    while page.evaluate(heights) == before and time.monotonic() < until:
        time.sleep(0.05)
    assert page.evaluate(heights) != before


UNDER_THE_BAR = """async () => {
  const all = [...document.querySelectorAll('main a, main button, main input, main select')]
    .filter((each) => each.getClientRects().length && !each.disabled && !each.closest('.edit-bar, .visually-hidden'));
  const bar = document.querySelector('.edit-bar'), under = [];
  for (const each of all.filter((_, at) => at % 3 === 0)) {
    each.focus({focusVisible: true});
    await new Promise((done) => requestAnimationFrame(done));
    const [a, b] = [each.getBoundingClientRect(), bar.getBoundingClientRect()];
    if (a.bottom > b.top + 1 && a.top < b.bottom && a.right > b.left && a.left < b.right) under.push(each.outerHTML);
  }
  return [all.length, under];
}"""


def test_the_bar_never_covers_what_has_the_focus(page: Any):
    open_plan(page, "small")
    page.locator(".device .block").first.focus()
    page.keyboard.press("Alt+ArrowRight")
    page.locator("#undo").wait_for()
    for width in (1280, 320):
        page.set_viewport_size({"width": width, "height": 700})
        count, under = page.evaluate(UNDER_THE_BAR)
        assert count > 20
        assert under == []
    page.locator("#reset").click()
    page.locator("#forget").click()


def test_ctrl_k_goes_anywhere_and_a_question_mark_lists_the_keys(page: Any):
    page.locator("#plan").wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Ctrl Z")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.get_by_label("Go to").last.fill("hos")
    expect(page.locator(".places a").first).to_have_text("hosts")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/plan/hosts")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed; npm ci in web/ brings it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_wide_and_narrow(page: Any, scheme: str):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.evaluate(AXE.read_text("utf-8"))

    def check() -> None:
        for width in (1280, 320):
            page.set_viewport_size({"width": width, "height": 900})
            rules = "{runOnly: ['wcag2a', 'wcag2aa', 'best-practice']}"
            found = page.evaluate(f"axe.run({rules}).then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
            assert found == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width

    page.evaluate(DROP, [["c.csv", "bad.json"], [CSV, "{"], "h1"])
    page.locator("#read-as .facts").wait_for()
    check()
    open_plan(page, "hosts")
    page.locator(".device .block").first.click()  # its panel
    page.keyboard.press("Alt+ArrowRight")
    page.locator("#undo").wait_for()
    page.locator("#rename").click()
    page.locator("#edit-note").click()
    check()
    page.keyboard.press("Escape")
    go(page, "/compare/small,hosts")
    page.locator("#comparison").wait_for()
    check()
    page.keyboard.press("Control+k")
    page.locator(".places a").first.wait_for()
    check()


def test_copies_and_tables_split_by_rows_stand_apart_and_a_table_says_what_it_costs(browser: Any, tmp_path: Path):
    tables = recsmith.sample_workload(6, 0, max_bytes=2**26)
    first, second, *rest = [each.name for each in tables.tables]
    rules = {"rules": [{"tables": first, "sharding_types": ["data_parallel"]},
                       {"tables": second, "sharding_types": ["row_wise"]},
                       {"tables": ",".join(rest[:1]), "sharding_types": ["table_wise"]}]}  # fmt: skip
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"schema": "recsmith/constraints/1", **rules}))
    made = recsmith.plan(tables, "h100:2", planner="size_greedy", constraints=file).plan
    (tmp_path / "plans").mkdir()
    recsmith.save_plan(made, tmp_path / "plans" / "mixed.json")
    with serving(f"{tmp_path / 'plans'}/") as found:
        for page in opened(browser, found):
            open_plan(page, "mixed")
            for name, said in ((first, "copied to every device"), (second, "split by rows over every device")):
                apart = page.locator("details.everywhere", has_text=said)
                apart.locator("summary").click()
                apart.get_by_role("button", name=name, exact=True).click()
                expect(page.locator("#alone")).to_contain_text(told(made, name))
                expect(page.get_by_label("Lies on")).to_have_count(0)
            page.locator(f'[data-key="0:{rest[1]}"]').click()
            assert table_cost(made, rest[1]).best is not None
            expect(page.locator("#alone")).to_contain_text(told(made, rest[1]))
            expect(page.get_by_label("Lies on")).to_be_visible()
            page.emulate_media(media="print")
            expect(page.locator("#top")).to_be_hidden()
            expect(page.get_by_role("button", name="Rename")).to_be_hidden()
            expect(page.locator("#tables")).to_be_visible()
            expect(page.locator("table.tables th").first).to_contain_text("Table")
            expect(page.locator("table.tables th button").first).to_be_visible()
            page.set_viewport_size({"width": 720, "height": 1000})  # about A4 between its margins
            for _ in range(100):  # charts follow a moment later
                if page.evaluate("document.documentElement.scrollWidth") <= 720:
                    break
                page.wait_for_timeout(100)
            assert page.evaluate("document.documentElement.scrollWidth") <= 720
            assert len(page.pdf(format="A4")) > 20_000


def told(plan: recsmith.Plan, table: str) -> str:
    """What the page says of a table."""
    cost = table_cost(plan, table)
    other = "No other place is allowed, or has room."
    if cost.best is not None and cost.best.total_s is not None:
        other = f"Its best other place, all else as it is: {cost.best.sharding_type} on "
    return f"and {format_time(cost.without_s)} without it. {other}"
