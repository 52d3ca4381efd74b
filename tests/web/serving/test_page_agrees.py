"""What the page says is what terminal and report say, point by point, in a real browser."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the page needs uvicorn")
pytest.importorskip("httpx", reason="the tests speak to it by httpx")
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

from playwright.sync_api import expect
from support.serving import Served, serving
from support.streams import a_stream

import recsmith
from recsmith.errors import Infeasible
from recsmith.plans.files import load_plan
from recsmith.problems.space import space_words
from recsmith.reports.online import online_lines, online_to_raw
from recsmith.reports.plans import slowest_of
from recsmith.web.report_data import notes_of, typically

expect.set_options(timeout=180_000)  # a busy machine
WIDE = {"name": "wide", "num_embeddings": 3_000_000, "embedding_dim": 256, "pooling_factor": 8}
NAMELESS = {
    "schema": "recsmith/workload/1", "batch_size": 4096, "optimizer": "rowwise_adagrad",
    "tables": [WIDE, *({"name": f"t{i}", "num_embeddings": 50_000 * (i + 1), "embedding_dim": 64, "pooling_factor": 2}
                       for i in range(6))],
}  # fmt: skip


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans that are looked at: split by columns, nearly full, and under other constraints."""
    folder = tmp_path_factory.mktemp("agrees")
    (folder / "clicks.json").write_text(json.dumps(NAMELESS))
    tables, cluster = recsmith.load_workload(folder / "clicks.json"), recsmith.load_cluster("h100:4")
    pin = {"sharding_type": "column_wise", "ranks": [0, 1, 2, 3], "widths": [64, 64, 64, 64]}
    rules = {"schema": "recsmith/constraints/1", "rules": [{"tables": "wide", "pin": pin}]}
    (folder / "rules.json").write_text(json.dumps(rules))
    space = recsmith.Space(types=("table_wise", "column_wise"))
    made = recsmith.plan(tables, cluster, planner="size_greedy", space=space, constraints=folder / "rules.json").plan
    recsmith.save_plan(made, folder / "split.json")
    plain = recsmith.plan(tables, cluster, planner="size_greedy").plan
    recsmith.save_plan(plain, folder / "plain.json")
    most = max(device.hbm_bytes for device in plain.cost.per_device)
    tight = recsmith.plan(tables, cluster.with_memory(int(most / 0.95)), planner="size_greedy").plan
    recsmith.save_plan(tight, folder / "tight.json")
    alone = recsmith.plan(tables, "h100:1", planner="size_greedy", cost_model="analytic").plan
    recsmith.save_plan(alone, folder / "alone.json")
    (folder / "online.json").write_text(json.dumps(online_to_raw(a_stream())))
    return folder


@pytest.fixture(scope="module")
def served(plans: Path) -> Iterator[Served]:
    with serving(
        "--memory", *(str(plans / f"{name}.json") for name in ("split", "plain", "tight", "alone", "online"))
    ) as found:
        yield found


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made, said = context.new_page(), list[str]()
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(served.address)
    made.wait_for_selector("h1")
    yield made
    assert said == []
    context.close()


def open_plan(page: Any, name: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/compare/")
    page.get_by_role("link", name=name, exact=True).first.click()
    page.locator(".device .block").first.wait_for()


def open_search(page: Any) -> Any:
    page.goto(f"{page.url.partition('#')[0]}#/")
    page.locator("#plan").wait_for()
    more = page.locator("details", has_text="More options")
    if more.get_attribute("open") is None:
        more.locator("summary").click()
    return more


def test_notes_slowest_device_and_space_are_those_of_the_report(page: Any, plans: Path):
    for name in ("split", "plain"):
        plan = load_plan(str(plans / f"{name}.json"))
        open_plan(page, f"{name}.json")
        shown = page.locator("main").inner_text()
        notes = list(notes_of(plan))
        assert ("differs from the unsharded model" in " ".join(notes)) == (name == "split")
        assert all(note in shown for note in notes)
        assert typically(plan)
        assert typically(plan) in shown
        slowest = slowest_of(plan.cost, plan.cost_model)
        part = slowest.part.removesuffix("_s").replace("_", " ")
        assert f"Device {slowest.rank} is the slowest" in shown
        assert f"mostly {part} ({round(100 * slowest.part_share)} %)" in shown
        assert f"valid for: {space_words(plan.bound.space)}" in shown


def test_what_pays_is_what_advise_tells(page: Any, plans: Path):
    open_plan(page, "alone.json")
    page.locator("#ask-advice").click()
    card = page.locator("section[aria-labelledby=pays]")
    asked = [sys.executable, "-m", "recsmith", "advise", str(plans / "alone.json")]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    expect(card).to_contain_text(told[0].removeprefix("advice").strip()[1:])
    shown = card.evaluate("card => card.textContent")
    changes = [re.sub(r"^ *([0-9]+[.])? *", "", line) for line in told if re.match("  [^ ].*: ", line)]
    assert changes
    assert all(line in shown for line in changes)
    facts = [line.strip().partition(": ")[2] for line in told if line.startswith("   ")]
    assert facts
    assert all(line in shown for line in facts)
    assert page.locator("#ask-advice").is_hidden()


def test_arms_of_a_stream_are_those_of_the_terminal(page: Any):
    page.goto(f"{page.url.partition('#')[0]}#/")
    page.get_by_role("link", name="online.json").click()
    page.locator("canvas").nth(1).wait_for()
    assert page.locator("h1").inner_text() == "window pays"
    found, (head, *lines) = a_stream(), online_lines(a_stream())
    assert found.because in page.locator("main").inner_text()
    rows = [row.inner_text().split("\t") for row in page.locator("table.arms tr").all()]
    assert [" ".join(cells[1:]) for cells in rows[:1]] == [re.sub(r"  +", " ", head.strip().replace("log", "Log")
            .replace("above", "Above").replace("cost", "Cost"))]  # fmt: skip
    assert [" ".join(cells) for cells in rows[1:]] == [re.sub(r"  +", " ", line) for line in lines[:2]]


def test_types_widths_kernels_exactness_and_reserve_are_offered_and_kept(page: Any):
    more = open_search(page)
    page.get_by_label("Workload").select_option("dlrm-v2")
    for kind in ("row wise", "table row wise", "grid shard", "data parallel", "table column wise"):
        more.get_by_label(kind, exact=True).uncheck()
    more.get_by_label("dense", exact=True).uncheck()
    more.get_by_label("Column widths").select_option("torchrec")
    more.get_by_label("Memory kept free, GiB").fill("4")
    more.get_by_label("Train exactly").check()
    page.get_by_label("Planner").select_option("cost_greedy")
    with page.expect_request("**/api/searches") as asked:
        page.locator("#plan").click()
    sent = json.loads(asked.value.post_data)
    assert sent["space"] == {"widths": "torchrec", "kernels": ["fused"], "types": ["table_wise", "column_wise"]}
    assert sent["changes"] == {"reserve_bytes": 4 * 2**30}
    assert sent["constraints"]["keep_exact"] is True
    page.wait_for_url("**/#/plan/**")
    page.locator(".device .block").first.wait_for()
    with page.expect_download() as coming:
        page.locator("#download-plan").click()
    plan = load_plan(str(coming.value.path()))
    assert plan.cluster.reserve_bytes == 4 * 2**30
    assert {each.sharding_type for each in plan.placements} <= {"table_wise", "column_wise"}
    assert not any(len(each.widths) > 1 for each in plan.placements)


def test_planners_of_research_are_behind_more(page: Any):
    page.locator("#plan").wait_for()
    offered = page.get_by_label("Planner").locator("option")
    assert offered.all_inner_texts() == ["auto (recommended)", "cost_greedy", "exact", "more…"]
    page.get_by_label("Planner").select_option("more…")
    expect(offered).to_have_count(15)
    assert page.get_by_label("Planner").input_value() == "auto"


def test_a_search_ends_when_it_is_done(page: Any):
    page.locator("#plan").wait_for()
    assert page.get_by_label("Search for at most").input_value() == ""
    with page.expect_request("**/api/searches") as asked:
        page.locator("#plan").click()
    assert json.loads(asked.value.post_data)["time_limit_s"] is None
    page.wait_for_url("**/#/plan/**", timeout=180_000)


def test_other_numbers_of_devices_are_whole_hosts_as_in_a_sweep(page: Any):
    open_plan(page, "plain.json")
    knob = page.get_by_label("Devices", exact=False).locator("xpath=self::input[@type='range']")
    texts: list[str] = []
    knob.focus()
    knob.press("Home")
    for _ in range(6):
        texts.append(knob.get_attribute("aria-valuetext"))
        knob.press("ArrowRight")
    assert texts[:6] == ["1 device", "2 devices", "4 devices", "8 devices", "16 devices in 2 hosts",
                         "32 devices in 4 hosts"]  # fmt: skip
    knob.press("ArrowLeft")
    knob.press("ArrowLeft")
    with page.expect_request("**/api/searches") as asked:
        page.locator("#replan-whatif").click()
    sent = json.loads(asked.value.post_data)["changes"]
    assert (sent["hosts"], sent["local_world_size"]) == (2, 8)
    point = recsmith.sweep("dlrm-v2", devices=[16], device=["h100"], planner="size_greedy").points[0]
    assert (point.hosts, point.per_host) == (2, 8)
    page.get_by_role("heading", name="on 16 devices").wait_for(timeout=180_000)


def test_a_full_device_is_named_and_a_reserve_offered(page: Any):
    open_plan(page, "tight.json")
    warning = page.locator(".full")
    assert re.search(r"Device \d is 9\d(\.\d+)? ?% full", warning.inner_text())
    with page.expect_request("**/api/searches") as asked:
        page.locator("#reserve").click()
    assert json.loads(asked.value.post_data)["changes"]["reserve_bytes"] > 0
    page.locator("h1", has_text=re.compile("planned anew|no plan|No plan")).wait_for(timeout=180_000)
    open_plan(page, "plain.json")
    assert page.locator(".full").inner_text() == ""


def test_a_plan_beyond_memory_cannot_be_kept(page: Any):
    open_plan(page, "tight.json")
    slider = page.get_by_label("Memory of a device")
    slider.focus()
    slider.press("Home")
    expect(page.locator(".full")).to_contain_text("it cannot be kept")
    expect(page.locator("#keep")).to_be_disabled()
    answer = page.request.post(
        page.url.partition("#")[0] + f"api/plans/{page.url.rpartition('/')[2]}/edits",
        data={"changes": {"hbm_bytes": 2**28}}, headers={"origin": page.url.partition("/#")[0]},
    )  # fmt: skip
    assert answer.status == 400
    assert "more memory than device" in answer.json()["error"]


def test_an_illegal_drag_says_why_at_the_pointer(page: Any):
    open_plan(page, "split.json")
    key, home, other = page.evaluate("""() => {
      const blocks = [...document.querySelectorAll('.block')].filter((each) => each.dataset.key.endsWith(':wide'));
      const rank = (each) => Number(each.closest('.device').dataset.rank);
      const other = blocks.find((each) => rank(each) !== rank(blocks[0]));
      return [blocks[0].dataset.key, rank(blocks[0]), other ? rank(other) : -1];
    }""")
    assert other >= 0
    target = page.locator(f".device[data-rank='{other}']")
    page.route("**/price", lambda route: route.fulfill(status=400, json={"error": "two pieces of wide on device 1"}))
    page.locator(f".device[data-rank='{home}'] .block[data-key='{key}']").drag_to(target)
    said = page.locator(".refused")
    expect(said).to_have_text("two pieces of wide on device 1")
    box, column = said.bounding_box(), target.bounding_box()
    assert abs(box["x"] - (column["x"] + column["width"] / 2)) < 360
    page.mouse.click(5, 5)
    expect(said).to_have_count(0)


def test_moves_by_hand_that_cannot_be_kept_are_not_left_without_a_question(page: Any):
    open_plan(page, "plain.json")
    here = page.url
    said = "the folder is full"
    page.route("**/draft", lambda route: route.fulfill(status=507, json={"error": said}))
    page.locator(".device .block:not(.kind-row_wise)").first.focus()
    page.keyboard.press("Alt+ArrowRight")
    page.get_by_text(said).wait_for()
    asked: list[str] = []

    def stay(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", stay)
    page.get_by_role("link", name="Your plans").click()
    expect(page.locator("#undo")).to_be_visible()
    expect(page).to_have_url(here)
    assert "could not be kept" in asked[0]
    page.unroute("**/draft")
    page.keyboard.press("Control+z")
    expect(page.get_by_text(said)).to_have_count(0)
    page.get_by_role("link", name="Your plans").click()
    page.get_by_role("heading", name="Your plans").wait_for()


def test_a_file_gives_its_name_to_its_plans(page: Any, plans: Path):
    page.locator("#plan").wait_for()
    page.locator("input[type=file]").set_input_files(plans / "clicks.json")
    expect(page.get_by_label("Workload").locator("option:checked")).to_contain_text("clicks")
    page.get_by_label("Planner").select_option("cost_greedy")
    page.locator("#plan").click()
    page.wait_for_url("**/#/plan/**")
    page.get_by_role("heading", name="clicks on h100:8", exact=True).wait_for()


def test_compare_lists_what_was_asked_differently(page: Any):
    page.goto(f"{page.url.partition('#')[0]}#/compare/")
    page.get_by_role("checkbox", name="Compare plain.json", exact=True).check()
    page.wait_for_url("**/#/compare/plan-*")
    page.get_by_role("checkbox", name="Compare split.json", exact=True).check()
    rows = page.locator("#asked-differently")
    expect(rows).to_contain_text("sharding types")
    assert "rule for wide" in rows.inner_text()
    assert "planner" not in rows.inner_text()  # the same in both


def devices_checked_for(workload: str, cluster: str) -> list[str]:
    """Numbers of devices under which the core has found a plan where there is none, each of which plans."""
    with pytest.raises(Infeasible, match="Checked to work") as caught:
        recsmith.plan(workload, cluster)
    checked = re.findall(r"(\d+) devices \(\d+ hosts\)", str(caught.value).partition("Checked to work")[2])
    device = cluster.partition(":")[0]
    for each in checked:
        assert recsmith.plan(workload, f"{device}:1x{each}", planner="size_greedy").plan.placements
    return [f"{each} devices" for each in checked]


def test_what_cannot_be_is_said_at_once_with_buttons_that_help(page: Any):
    page.locator("#plan").wait_for()
    page.get_by_label("Workload").select_option("criteo-1tb")
    page.get_by_label("Devices in a host").fill("1")
    page.get_by_label("Devices in a host").press("Tab")
    page.locator("#plan").click()
    page.get_by_role("heading", name="There is no plan for this").wait_for(timeout=180_000)
    said = page.locator(".note.error, .lead.error").first.inner_text()
    assert "Proved: no plan exists below" in said
    assert "--" not in said
    buttons = page.locator("button.fix").all_inner_texts()
    offered = [each for each in buttons if re.fullmatch(r"\d+ devices", each)]
    assert offered
    assert offered == devices_checked_for("criteo-1tb", "h100:1")
    assert "allow host memory" in buttons
    page.locator("button.fix").first.click()
    page.wait_for_url("**/#/plan/**", timeout=180_000)


def test_numbers_stand_right_and_the_last_row_is_whole(page: Any):
    open_plan(page, "plain.json")
    aligned = page.evaluate("""() => [...document.querySelectorAll('.tables tbody tr:first-child td')]
      .map((each) => getComputedStyle(each).textAlign)""")
    heads = page.locator(".tables thead th").all_inner_texts()
    assert [heads[i] for i, each in enumerate(aligned) if each == "right"] == [
        "Rows", "Columns", "Weights", "Time", "Ids per sample", "Pieces"]  # fmt: skip
    bottom = page.evaluate("""() => {
      const scroll = document.querySelector('.scroll.tall');
      scroll.scrollTop = scroll.scrollHeight;
      const row = scroll.querySelector('tbody tr:last-child').getBoundingClientRect();
      return scroll.getBoundingClientRect().bottom - row.bottom;
    }""")
    assert bottom >= 0
