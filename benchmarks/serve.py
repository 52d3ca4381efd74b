"""What the page of `recsmith serve` costs: seconds until it answers, a dragged shard, memory over plans, any request.

python benchmarks/serve.py drag     # milliseconds from a drop to the new figures in Chromium, and of the server's price
python benchmarks/serve.py start    # seconds from the command to a page that can be used, and to the first event
python benchmarks/serve.py memory   # resident memory of the server over 50 plans, or --plans
python benchmarks/serve.py requests # random requests by schemathesis (pip install schemathesis); no answer may be a 5xx

Playwright and Debian's chromium are needed for `drag` and `start`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import recsmith

CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance"
SEARCH = {"workload": "dlrm-v2", "cluster": "h100:8", "planner": "size_greedy", "time_limit_s": 60}
MOVE = """async (at) => {
  const effect = document.querySelector('#effect').textContent;
  const block = document.querySelectorAll('.device .block')[at];
  const column = block.closest('.device'), all = [...document.querySelectorAll('.device')];
  const target = all[(all.indexOf(column) + 1) % all.length], data = new DataTransfer();
  block.dispatchEvent(new DragEvent('dragstart', {bubbles: true, dataTransfer: data}));
  const begun = performance.now();
  target.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: data}));
  while (document.querySelector('#effect').textContent === effect) await new Promise((done) => setTimeout(done, 1));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - begun;
}"""


@contextmanager
def serving(*files: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server and its address."""
    process = subprocess.Popen([sys.executable, "-m", "recsmith", "serve", "--no-open", "--memory", *files],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def client_of(address: str) -> httpx.Client:
    """A program that sends the token."""
    base, _, token = address.partition("/?token=")
    return httpx.Client(base_url=base, headers={"authorization": f"Bearer {token}"}, timeout=300)


def plan_file(folder: str, tables: int, cluster: str) -> str:
    """The file of a plan of sampled tables."""
    target = str(Path(folder) / f"plan-{tables}.json")
    recsmith.save_plan(recsmith.plan(recsmith.sample_workload(tables, 0), cluster, planner="size_greedy").plan, target)
    return target


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def drag() -> None:
    from playwright.sync_api import sync_playwright

    for tables, cluster in ((500, "h100:8x2"), (2000, "h100:8x16")):
        with (
            tempfile.TemporaryDirectory() as folder,
            serving(plan_file(folder, tables, cluster)) as (_, address),
            sync_playwright() as driver,
        ):
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(address)
            begun = time.perf_counter()
            page.locator(".plans a").first.click()
            page.locator(".block").first.wait_for()
            opened = time.perf_counter() - begun
            spent = [page.evaluate(MOVE, 3 * at) for at in range(30)]
            with client_of(address) as client:
                found = [priced(client, at) for at in range(30)]
            print(
                f"{tables} tables, {cluster}: opens in {opened:.2f} s; a drop shows after {median(spent):.0f} ms "
                f"(median of 30, the first {spent[0]:.0f}, the slowest {max(spent):.0f}); the server prices it in "
                f"{1e3 * median(found):.0f} ms (slowest {1e3 * max(found):.0f})"
            )
            browser.close()


def priced(client: httpx.Client, at: int) -> float:
    """Seconds of a price for a program."""
    plan = client.get("/api/kept").json()["plans"][0]["id"]
    move = {"table": f"table_{at:04d}", "rank": at % 16}
    begun = time.perf_counter()
    client.post(f"/api/plans/{plan}/price", json={"moves": [move]}).raise_for_status()
    return time.perf_counter() - begun


def start() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        begun = time.perf_counter()
        with serving() as (_, address):
            said = time.perf_counter() - begun
            page = browser.new_page()
            begun = time.perf_counter()
            page.goto(address)
            page.locator("#plan").wait_for()
            usable = time.perf_counter() - begun
            begun = time.perf_counter()
            page.locator("#plan").click()
            page.get_by_text("Each step down").wait_for()
            print(f"address after {said:.2f} s; page usable {usable:.2f} s after it is opened; "
                  f"the first plan shows {time.perf_counter() - begun:.2f} s after the button")  # fmt: skip
        browser.close()


def memory(plans: int) -> None:
    with serving() as (process, address), client_of(address) as client:
        print(f"at the start: {resident(process.pid)} MiB")
        for count in range(1, plans + 1):
            plan(client)
            if count in (1, 5) or count % 10 == 0:
                print(f"after {count} plans: {resident(process.pid)} MiB", flush=True)


def plan(client: httpx.Client) -> None:
    """One search, its plan looked at, moved by hand and downloaded, as a person does."""
    search = client.post("/api/searches", json=SEARCH | {"workload": workload_of(client)}).json()["id"]
    client.get(f"/api/searches/{search}/events").raise_for_status()
    found = client.get(f"/api/searches/{search}").json()["plan"]
    data = client.get(f"/api/plans/{found}").json()["data"]
    table = next(each["name"] for each in data["tables"] if each["movable"])
    for rank in range(4):
        client.post(f"/api/plans/{found}/price", json={"moves": [{"table": table, "rank": rank}]}).raise_for_status()
    client.get(f"/api/plans/{found}/file").raise_for_status()


def workload_of(client: httpx.Client) -> str:
    kept: list[Any] = client.get("/api/kept").json()["workloads"]
    return kept[0]["id"] if kept else client.post("/api/samples", json={"tables": 200}).json()["id"]


def resident(pid: int) -> int:
    """MiB of a process."""
    words = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()
    return int(words[0]) // 1024


def requests(examples: int) -> None:
    with serving() as (process, address), tempfile.TemporaryDirectory() as folder:
        base, _, token = address.partition("/?token=")
        with client_of(address) as client:
            document = Path(folder) / "openapi.json"
            document.write_text(json.dumps(with_a_plan(client.get("/api/openapi.json").json(), client, folder)))
        done = subprocess.run(
            [str(Path(sys.executable).with_name("schemathesis")), "run", str(document), "--url", base, "-H",
             f"Authorization: Bearer {token}", "--checks", CHECKS,
             "--exclude-path", "/api/searches/{id}/events", "--max-examples", str(examples), "--request-timeout", "60"],
        )  # fmt: skip
        print("the server lives" if process.poll() is None else "the server has died")
        sys.exit(done.returncode)


def with_a_plan(document: Any, client: httpx.Client, folder: str) -> Any:
    """The document with the id of a plan that is kept, so that random requests reach more than `not found`."""
    data = Path(plan_file(folder, 20, "h100:2x2")).read_bytes()
    plan = client.post("/api/files", params={"name": "plan.json"}, content=data).json()["plan"]["id"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/plans/{id}") and method != "delete":
                operation["parameters"][0]["schema"] = {"enum": [plan]}
    move = document["components"]["schemas"]["PieceMove"]["properties"]
    move["table"], move["rank"] = {"enum": [f"table_{i:04d}" for i in range(20)]}, {"type": "integer", "maximum": 5}
    asked = document["components"]["schemas"]["SearchRequest"]["properties"]
    asked["workload"], asked["cluster"] = {"enum": ["criteo-kaggle"]}, {"enum": ["h100:2", "cpu:1", "a100-80:8x2"]}
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["drag", "start", "memory", "requests"])
    parser.add_argument("--examples", type=int, default=100, help="Random requests of an operation.")
    parser.add_argument("--plans", type=int, default=50, help="Plans that are made for `memory`.")
    words = parser.parse_args()
    if words.what == "requests":
        requests(words.examples)
    elif words.what == "memory":
        memory(words.plans)
    else:
        drag() if words.what == "drag" else start()


if __name__ == "__main__":
    main()
