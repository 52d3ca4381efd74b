"""Takes the pictures of docs/report.md and docs/serve.md, or measures how long a report takes to open.

python benchmarks/report_pictures.py                    # docs/pictures/report-*.png, serve.png: DLRM-v2 on 8 x H100
python benchmarks/report_pictures.py --open plan.html   # seconds until a report is drawn, five times

It needs Playwright and chromium.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import recsmith

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SHOWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1000))))"
READY = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, path: Path, scheme: str = "light", width: int = 1200, height: int = 980) -> Any:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("[data-drawn]", state="attached")
    return page


def pictures(folder: Path) -> None:
    first = recsmith.plan("dlrm-v2", "h100:8").plan
    other = recsmith.plan("dlrm-v2", "h100:8", planner="size_greedy").plan
    recsmith.save_plan(first, folder / "plan.json")
    recsmith.save_plan(other, folder / "greedy.json")
    recsmith.report(folder / "plan.json", folder / "plan.html")
    recsmith.report(folder / "plan.json", folder / "against.html", against=folder / "greedy.json")
    with chromium() as browser:
        for scheme in ("light", "dark"):
            opened(browser, folder / "plan.html", scheme).screenshot(path=PICTURES / f"report-{scheme}.png")
        page = opened(browser, folder / "plan.html")
        page.evaluate("document.querySelector('header').style.position = 'static'")
        page.click("#shards button.link:has-text('cat_20') >> nth=0")
        page.locator("#shards").screenshot(path=PICTURES / "report-shards.png")
        page = opened(browser, folder / "against.html")
        page.evaluate("document.querySelector('header').style.position = 'static'")
        page.locator("#changes").screenshot(path=PICTURES / "report-against.png")
        served(browser, folder / "plan.json")


def served(browser: Any, plan: Path) -> None:
    """The picture of the page that `recsmith serve` shows of a plan."""
    (plan.parent / "plans").mkdir()
    plan.rename(plan.parent / "plans" / "dlrm-v2 on h100:8.json")
    words = [sys.executable, "-m", "recsmith", "serve", "--no-open", f"{plan.parent / 'plans'}/"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        page = browser.new_page(viewport={"width": 1280, "height": 1560})
        page.goto(f"{server.stdout.readline().strip()}#/compare/")
        page.get_by_role("link", name="dlrm-v2 on h100:8").first.click()
        page.locator(".device .block").first.wait_for()
        page.wait_for_timeout(1000)  # charts are drawn one after the other
        page.screenshot(path=PICTURES / "serve.png")
    finally:
        server.terminate()
        server.wait()


def times(path: Path) -> None:
    with chromium() as browser:
        seconds: list[tuple[float, float]] = []
        for _ in range(5):
            page = opened(browser, path)
            seconds.append((page.evaluate(SHOWN), page.evaluate(READY)))
            page.close()
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    for drawn, first in seconds:
        print(f"first words after {first:.2f} s, all charts after {drawn:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=Path, metavar="FILE", help="a report to measure")
    given = parser.parse_args()
    if given.open:
        times(given.open)
        return
    with tempfile.TemporaryDirectory() as folder:
        pictures(Path(folder))


if __name__ == "__main__":
    main()
