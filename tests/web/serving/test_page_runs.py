"""A job beside its plan, in a real browser, followed while it trains; a sweep; an address that only shows."""

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
from support.serving import Served, serving

import recsmith
from recsmith.analyses.sweep import sweep
from recsmith.files import dump_json
from recsmith.reports.comparisons import knee_words, sweep_to_raw
from recsmith.units import format_time

AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
ALARM = {
    "event": "alarm",
    "step": 55,
    "since": 50,
    "kind": "loss",
    "because": "logloss rose <b>fast</b>",
    "action": "x",
}
expect.set_options(timeout=180_000)  # a busy machine


def line(step: int) -> str:
    values = {"event": "train", "step": step, "logloss": 0.7 - step / 1000, "samples_per_s": 1234.0, "step_s": 0.025,
              "data_s": 0.001, "forward_s": 0.008, "backward_s": 0.016}  # fmt: skip
    return json.dumps(values) + "\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that trains."""
    folder = tmp_path_factory.mktemp("runs") / "monday"
    folder.mkdir()
    tables = recsmith.sample_workload(12, 0, max_bytes=2**28)
    recsmith.save_plan(recsmith.plan(tables, "h100:4", planner="size_greedy").plan, folder / "plan.json")
    (folder / "run.json").write_text("{}")
    (folder / "log.jsonl").write_text("".join(map(line, range(10, 60, 10))) + json.dumps(ALARM) + "\n")
    return folder


@pytest.fixture(scope="module")
def plans(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of plans that holds the run's plan."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "running.json").write_bytes((run / "plan.json").read_bytes())
    return folder


@pytest.fixture(scope="module")
def served(run: Path, plans: Path) -> Iterator[Served]:
    with serving(f"{plans}/", str(run)) as found:
        yield found


@pytest.fixture(scope="module")
def shown(run: Path, plans: Path) -> Iterator[Served]:
    """The same, read only."""
    with serving(f"{plans}/", str(run), "--read-only") as found:
        yield found


def opened(browser: Any, address: str, **words: Any) -> Iterator[Any]:
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **words})
    page, said = context.new_page(), list[str]()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    page.wait_for_selector("h1")
    yield page
    assert said == []
    context.close()


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    yield from opened(browser, served.address)


@pytest.fixture
def looking(browser: Any, shown: Served) -> Iterator[Any]:
    yield from opened(browser, shown.address)


def text(page: Any, selector: str) -> str:
    return re.sub(r"\s+", " ", page.locator(selector).first.inner_text())


def test_the_address_of_a_run_shows_it_beside_its_plan(page: Any, run: Path):
    expect(page.locator("h1")).to_have_text("monday")
    plan = recsmith.load_plan(run / "plan.json")
    assert plan.cost is not None
    figures = text(page, ".figures")
    assert f"Predicted, embeddings {format_time(plan.cost.step_s)}" in figures
    assert "Measured, whole step 25 ms" in figures
    assert "Samples a second 1,234" in figures
    assert plan.digest[:16] in text(page, "section:has(> #run-plan)")
    for title in ("Loss", "Samples a second", "Parts of a step"):
        expect(page.locator("section.card", has=page.get_by_role("heading", name=title, exact=True))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Parts of a step: Whole step 25 at step"))).to_be_visible()
    assert "logloss rose <b>fast</b>" in text(page, ".alarms")
    page.get_by_role("link", name="Open the plan: running").click()
    expect(page.locator("h1")).to_have_text("running")


def test_it_follows_the_job(page: Any, run: Path):
    expect(page.locator("#state")).to_contain_text("It trains, and this page follows")
    with (run / "log.jsonl").open("a") as log:
        log.write(line(500))
    expect(page.locator("#state")).to_contain_text("Step 500")
    expect(page.locator(".figures")).to_contain_text("0.2000")
    expect(page.get_by_role("img", name=re.compile("^Loss: Training 0.2 at step 500"))).to_be_visible()
    assert (run / "log.jsonl").read_text().endswith(line(500))


def test_a_sweep_is_a_page_with_its_knee(page: Any, tmp_path: Path):
    tables = recsmith.sample_workload(12, 0, max_bytes=2**28)
    found = sweep(tables, devices=[2, 4], device=["h100"], batch_sizes=[512], planner="size_greedy")
    file = tmp_path / "sweep.json"
    file.write_text(dump_json(sweep_to_raw(found)))
    page.goto(f"{page.url.partition('#')[0]}#/")
    page.get_by_text("Drop files anywhere").wait_for()
    page.locator("input[type=file]").first.set_input_files(str(file))
    expect(page.locator("h1")).to_contain_text("pay best")
    (knee,) = found.knees
    assert text(page, "section:has(> #knee) li") == knee_words(knee, found.fixed)
    expect(page.locator("tr.knee th")).to_have_text(f"{knee.devices} the knee")
    expect(page.get_by_role("img", name=re.compile("^Samples a second by devices"))).to_be_visible()
    page.goto(f"{page.url.partition('#')[0]}#/")
    expect(page.locator("section:has(> #sweeps) a")).to_have_text("sweep.json")


def test_an_address_that_only_shows_has_nothing_that_changes(looking: Any, plans: Path):
    before = sorted((path.name, path.read_bytes()) for path in plans.iterdir())
    expect(looking.locator("#only-shows")).to_have_text("Only to look at")
    expect(looking.get_by_role("link", name="New plan")).to_be_hidden()
    looking.goto(f"{looking.url.partition('#')[0]}#/")
    expect(looking.locator("h1")).to_have_text("Your plans")
    expect(looking.locator("section:has(> #runs) a")).to_have_text("monday")
    looking.get_by_role("link", name="running").first.click()
    looking.locator(".device .block").first.wait_for()
    for button in ("Rename", "Delete", "Duplicate", "Add a note", "Keep as a new plan", "Pin it here"):
        expect(looking.get_by_role("button", name=button, exact=True)).to_have_count(0)
    looking.locator(".device .block").first.focus()
    looking.keyboard.press("Alt+ArrowRight")
    looking.keyboard.press("Enter")
    time.sleep(1)
    expect(looking.locator(".edit-bar")).to_be_hidden()
    expect(looking.locator(".figures").first).to_contain_text("Time of a step")
    assert sorted((path.name, path.read_bytes()) for path in plans.iterdir()) == before


def test_the_command_prints_an_address_to_share(plans: Path):
    with serving(f"{plans}/") as found:
        assert found.process.stderr is not None
        said = [found.process.stderr.readline() for _ in range(2)]
    shared = re.search(r"http\S+", said[1])
    assert said[1].startswith("recsmith: to show it to others, who can change nothing: http://127.0.0.1:")
    assert shared is not None
    assert shared[0] != found.address


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed; npm ci in web/ brings it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(browser: Any, served: Served, tmp_path: Path, scheme: str):
    tables = recsmith.sample_workload(12, 0, max_bytes=2**28)
    found = sweep(tables, devices=[2, 4], device=["h100"], batch_sizes=[512], planner="size_greedy")
    file = tmp_path / "sweep.json"
    file.write_text(dump_json(sweep_to_raw(found)))
    for width in (320, 1280):
        for page in opened(browser, served.address, color_scheme=scheme, viewport={"width": width, "height": 900}):
            page.locator(".alarms").wait_for()
            check(page, ("run", scheme, width))
            page.goto(f"{page.url.partition('#')[0]}#/")
            page.get_by_text("Drop files anywhere").wait_for()
            page.locator("input[type=file]").first.set_input_files(str(file))
            page.locator("tr.knee").wait_for()
            check(page, ("sweep", scheme, width))


def check(page: Any, where: object) -> None:
    page.evaluate(AXE.read_text())
    rules = "document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"
    found = page.evaluate(f"axe.run({rules}).then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
    assert found == [], where
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
