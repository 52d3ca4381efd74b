"""A folder of plans under all at once: two servers that are killed, two browsers, programs, and the command line.

python benchmarks/serve_soak.py                                # 50 plans, 50 kills, 5 minutes
python benchmarks/serve_soak.py --plans 8 --kills 4 --minutes 0.5

Two servers share one folder. At moments that are spread over the time, one of them is killed with SIGKILL and started
again. Meanwhile two browsers, one a server, move blocks by keys and take moves back; two programs upload, copy, name,
note and delete plans and bring them back; and `recsmith plan -o` writes plans into the folder. Every act that was
answered is put down. In the end, each must be found in the folder by a reader that has just started: every plan under
its id, with its digest, its last name and note and its last draft; what was deleted among the deleted; no file half
written. An act that was cut off by a kill may have happened or not.

Playwright and Debian's chromium are needed; without them, `--no-browsers` leaves the programs.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import recsmith
from recsmith.files import dump_json
from recsmith.plans import Plan, plan_to_raw
from recsmith.web.serving.folder import PlanFolder
from recsmith.web.serving.settings import Settings
from recsmith.web.serving.views import plan_summary

CHROMIUM = "/usr/bin/chromium"
PAUSE_S = 0.2  # between two acts of one hand


@dataclass
class Known:
    """What must be true of a plan. An act that was sent and not answered leaves two values possible."""

    digest: str
    names: set[str]
    notes: set[str] = field(default_factory=lambda: {""})
    places: set[str] = field(default_factory=lambda: {"here"})
    drafts: set[str] | None = None  # versions; None where none was answered


class Ledger:
    """What was answered, and how often."""

    def __init__(self) -> None:
        self.plans: dict[str, Known] = {}
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def count(self, what: str) -> None:
        """One more of these."""
        with self.lock:
            self.counts[what] += 1


class Servers:
    """Two servers on one folder, each with the address of now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[tuple[subprocess.Popen[str], str]] = [self._start(), self._start()]

    def _start(self) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen([sys.executable, "-m", "recsmith", "serve", "--no-open", str(self.folder)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    def address(self, number: int) -> str:
        """Where a server is now."""
        return self.running[number][1]

    def kill(self, number: int) -> None:
        """SIGKILL, and the same again."""
        process, _ = self.running[number]
        process.kill()
        process.wait()
        self.running[number] = self._start()

    def end(self) -> None:
        """End both."""
        for process, _ in self.running:
            process.kill()
            process.wait()


class Hand(threading.Thread):
    """Does one thing after the other until the time is over; what a kill cuts off is done again or left."""

    def __init__(self, number: int, ledger: Ledger, over: threading.Event, act: Callable[["Hand"], None]) -> None:
        super().__init__(daemon=True)
        self.number, self.ledger, self.over, self.act = number, ledger, over, act
        self.draw = random.Random(number)
        self.wrong: list[str] = []

    def run(self) -> None:
        """Do it."""
        while not self.over.is_set():
            try:
                self.act(self)
            except (httpx.HTTPError, OSError):
                self.ledger.count("cut off by a kill")
            except Exception as error:
                if "net::ERR" not in str(error) and "Timeout" not in str(error):
                    self.wrong.append(f"{type(error).__name__}: {error}")
                self.ledger.count("cut off by a kill")
            self.over.wait(PAUSE_S)


def program(servers: Servers, plans: list[Plan], most: int) -> Callable[[Hand], None]:
    """A program that uploads, copies, names, notes, deletes and restores plans of its own."""
    mine: dict[int, list[str]] = {}

    def act(hand: Hand) -> None:
        base, _, token = servers.address(hand.number % 2).partition("/?token=")
        own, ledger = mine.setdefault(hand.number, []), hand.ledger
        with httpx.Client(base_url=base, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            if len(own) < most:
                plan = plans[len(own) % len(plans)]
                name = f"hand {hand.number} plan {len(own)}.json"
                answer = client.post("/api/files", params={"name": name}, content=dump_json(plan_to_raw(plan)))
                answer.raise_for_status()
                ledger.plans[answer.json()["plan"]["id"]] = Known(plan.digest, {name})
                own.append(answer.json()["plan"]["id"])
                return ledger.count("plans uploaded")
            key = hand.draw.choice(own)
            known = ledger.plans[key]
            what = hand.draw.choice(["name", "note", "delete", "copy"])
            if what in ("name", "note"):
                said = f"{what} {time.time()}"
                before = known.names if what == "name" else known.notes
                before.add(said)
                client.patch(f"/api/plans/{key}", json={what: said}).raise_for_status()
                before.intersection_update({said})
                return ledger.count(f"{what}s given")
            if what == "copy" and len(own) < 2 * most:
                answer = client.post(f"/api/plans/{key}/copies", json={"name": f"copy {time.time()}"})
                answer.raise_for_status()
                made = answer.json()
                ledger.plans[made["id"]] = Known(known.digest, {made["name"]}, {made["note"]})
                own.append(made["id"])
                return ledger.count("copies")
            return delete_and_restore(client, key, own, ledger)

    return act


def delete_and_restore(client: httpx.Client, key: str, own: list[str], ledger: Ledger) -> None:
    own.remove(key)  # until it is back: a cut-off act leaves it in either place
    known = ledger.plans[key]
    known.places.add("deleted")
    client.delete(f"/api/plans/{key}").raise_for_status()
    known.places.intersection_update({"deleted"})
    known.places.add("here")
    client.post(f"/api/plans/{key}/restore").raise_for_status()
    known.places.intersection_update({"here"})
    own.append(key)
    ledger.count("deletions undone")


def command_line(folder: Path, workload: Path, most: int) -> Callable[[Hand], None]:
    """`recsmith plan -o` into the folder, and `recsmith simulate` of what lies there."""

    def act(hand: Hand) -> None:
        number = hand.ledger.counts["plans of the command line"]
        if number >= most:
            hand.over.wait(1)
            return
        file = folder / f"cli {number}.json"
        command = [sys.executable, "-m", "recsmith", "plan", str(workload), "--cluster", "h100:2", "--planner",
                   "size_greedy", "-o", str(file)]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        found = PlanFolder(folder, Settings(token="x"), plan_summary)
        key = next(each.id for each in found.listing().plans if each.origin == f"file {file.name}")
        hand.ledger.plans[key] = Known(recsmith.load_plan(file).digest, {file.stem})
        hand.ledger.count("plans of the command line")

    return act


def browser(servers: Servers, keys: list[str]) -> Callable[[Hand], None]:
    """A browser that moves a block of a plan, takes it back, or does it again, at a plan of its own."""
    started: dict[int, Any] = {}

    def act(hand: Hand) -> None:
        from playwright.sync_api import sync_playwright

        if hand.number not in started:
            driver = sync_playwright().start()
            started[hand.number] = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = started[hand.number].new_page()
        page.set_default_timeout(20_000)
        try:
            page.goto(servers.address(hand.number % 2))
            key = keys[hand.number % len(keys)]
            known = hand.ledger.plans[key]
            page.goto(f"{page.url.partition('#')[0]}#/plan/{key}")
            page.locator(".device .block").first.wait_for()
            for _ in range(4):
                if hand.over.is_set():
                    return
                known.drafts = {*(known.drafts or {""}), "?"}
                with page.expect_response("**/draft") as heard:
                    page.locator(".device .block").nth(hand.draw.randrange(6)).focus()
                    page.keyboard.press(hand.draw.choice(["Alt+ArrowRight", "Alt+ArrowRight", "Control+z"]))
                if heard.value.ok:
                    known.drafts = {heard.value.json()["version"]}
                    hand.ledger.count("moves by hand kept")
        finally:
            page.close()

    return act


def check(folder: Path, ledger: Ledger) -> list[str]:
    """What is missing or not as it was answered."""
    found = PlanFolder(folder, Settings(token="x"), plan_summary)
    listing, wrong = found.listing(), list[str]()
    wrong += [f"{each.file} cannot be read: {each.why}" for each in listing.unread]
    here, deleted = {each.id: each for each in listing.plans}, {each.id for each in listing.deleted}
    for key, known in ledger.plans.items():
        if key not in here:
            if key not in deleted or "deleted" not in known.places:
                wrong.append(f"plan {key} is not there")
            continue
        plan = here[key]
        if "here" not in known.places:
            wrong.append(f"plan {key} was deleted, and is there")
        if plan.digest != known.digest:
            wrong.append(f"plan {key} is another one")
        if plan.name not in known.names or plan.note not in known.notes:
            wrong.append(f"plan {key} is called {plan.name!r}, {plan.note!r}; wanted {known.names}, {known.notes}")
        if known.drafts is not None and "?" not in known.drafts and found.draft(key).version not in known.drafts:
            wrong.append(f"the draft of {key} is {found.draft(key).version}; wanted {known.drafts}")
    return wrong


def soak(plans: int, kills: int, minutes: float, *, browsers: bool) -> int:
    ledger, over, draw = Ledger(), threading.Event(), random.Random(0)
    with tempfile.TemporaryDirectory() as home:
        folder, workload = Path(home) / "plans", Path(home) / "tables.json"
        folder.mkdir()
        tables = recsmith.sample_workload(30, 0, max_bytes=2**28)
        recsmith.save_workload(tables, workload)
        made = [
            recsmith.plan(tables, cluster, planner="size_greedy").plan for cluster in ("h100:2", "h100:4", "h100:8")
        ]
        keys = [f"browser-{number}" for number in range(2)]
        for key in keys:
            recsmith.save_plan(made[1], folder / f"{key}.json")
            ledger.plans[key] = Known(made[1].digest, {key})
        servers = Servers(folder)
        of_programs = program(servers, made, max(2, (plans - 12) // 2))
        hands = [Hand(number, ledger, over, of_programs) for number in range(2)]
        hands.append(Hand(9, ledger, over, command_line(folder, workload, 10)))
        if browsers:
            hands += [Hand(number, ledger, over, browser(servers, keys)) for number in range(2)]
        for hand in hands:
            hand.start()
        begun = time.monotonic()
        for number in range(kills):
            moment = begun + (number + draw.random()) * 60 * minutes / kills
            time.sleep(max(0.0, moment - time.monotonic()))
            servers.kill(number % 2)
        over.set()
        for hand in hands:
            hand.join(120)
        servers.end()
        wrong = [*check(folder, ledger), *(each for hand in hands for each in hand.wrong)]
        left = [each.name for each in folder.iterdir() if each.name.startswith(".")]
        print(f"{kills} kills in {(time.monotonic() - begun) / 60:.1f} minutes; {len(ledger.plans)} plans; "
              + "; ".join(f"{count} {what}" for what, count in sorted(ledger.counts.items())))  # fmt: skip
        print(f"{len(left)} temporary files of killed writers, which no reader takes for a plan")
        for each in wrong:
            print(f"WRONG: {each}")
        print("all there" if not wrong else f"{len(wrong)} wrong")
        return bool(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=50, help="Plans that are kept, besides copies.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--no-browsers", action="store_true")
    words = parser.parse_args()
    sys.exit(soak(words.plans, words.kills, words.minutes, browsers=not words.no_browsers))


if __name__ == "__main__":
    main()
