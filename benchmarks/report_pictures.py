"""Takes the pictures of docs/report.md, and measures how long a report takes to open; needs Playwright and chromium.

python benchmarks/report_pictures.py                    # docs/pictures/report-*.png, of MLPerf DLRM-v2 on 8 x H100
python benchmarks/report_pictures.py --open plan.html   # seconds until a report is drawn, five times
"""

import argparse
import shutil
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
