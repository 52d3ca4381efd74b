"""`recsmith serve` from outside: its address, searches as processes, live events, cancelling, and its end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the page needs uvicorn")
pytest.importorskip("httpx", reason="the tests speak to it by httpx")

import httpx
from support.serving import WAIT_S, Served, events_of, serving

LONG = {"workload": "nvidia-jumbo", "cluster": "h100:8x8", "time_limit_s": 300}  # ends when it is ended


@pytest.fixture(scope="module")
def served(plan_text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("served") / "mine.json"
    path.write_text(plan_text)
    with serving(str(path)) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as found:
        yield found


def start(client: httpx.Client, **asked: Any) -> str:
    answer = client.post("/api/searches", json=asked)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid: str) -> bool:
    found = Path("/proc") / pid / "stat"
    return found.exists() and found.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_address_and_the_files_of_the_command_line(served: Served, client: httpx.Client):
    assert served.base.startswith("http://127.0.0.1:")
    assert len(served.token) > 40
    assert [each["name"] for each in client.get("/api/kept").json()["plans"]] == ["mine.json"]
    assert httpx.get(f"{served.base}/api/kept").status_code == 401


def test_a_search_tells_of_itself_and_keeps_its_plan(client: httpx.Client):
    search = start(client, workload="dlrm-v2", cluster="h100:8", iterations=2, time_limit_s=60)
    events = list(events_of(client, search))
    kinds = [event["kind"] for event in events]
    assert kinds[:3] == ["queued", "started", "bound"]
    assert kinds[-1] == "done"
    costs = [event["total_s"] for event in events if event["kind"] == "improved"]
    assert costs == sorted(costs, reverse=True)
    assert costs
    plan = events[-1]["plan"]
    assert plan["bound_s"] <= plan["total_s"] <= costs[-1]
    assert client.get(f"/api/plans/{plan['id']}").json()["summary"] == plan
    again = client.get(f"/api/searches/{search}/events", headers={"last-event-id": str(len(events) - 2)})
    assert again.text.count("data: ") == 1  # whoever lost the line hears the rest


def test_impossible_wishes_fail_with_the_sentence_of_the_command_line(client: httpx.Client):
    rules = {"rules": [{"tables": "cat_0", "ranks": [0]}, {"tables": "cat_0", "not_ranks": [0]}]}
    search = start(client, workload="dlrm-v2", cluster="h100:8", constraints=rules, planner="size_greedy")
    last = list(events_of(client, search))[-1]
    assert last["kind"] == "failed"
    assert "cat_0" in last["error"]
    full = start(client, workload="dlrm-v2", cluster="h100:1", changes={"hbm_bytes": 2**35}, planner="size_greedy")
    ended = list(events_of(client, full))[-1]
    assert "the tables need at least" in ended["error"] or "fits no device" in ended["error"]
    assert "allow host memory" in [fix["text"] for fix in ended["fixes"]]


def test_a_cancelled_search_ends_its_process_and_a_stopped_one_keeps_its_best(served: Served, client: httpx.Client):
    search = start(client, **LONG)
    until(lambda: client.get(f"/api/searches/{search}").json()["state"] != "queued")
    running = served.children()
    second = client.post("/api/searches", json=LONG)
    assert second.status_code == 409
    assert "cancel it" in second.json()["error"]
    assert client.delete(f"/api/searches/{search}").json()["state"] == "cancelled"
    until(lambda: not any(map(is_running, running)))
    stopped = start(client, workload="dlrm-v2", cluster="h100:8", time_limit_s=300)
    for event in events_of(client, stopped):
        if event["kind"] == "improved":
            client.post(f"/api/searches/{stopped}/stop")
    assert client.get(f"/api/searches/{stopped}").json()["state"] == "done"


# --- requests that are no requests --------------------------------------------------------------------------------


def raw(served: Served, head: bytes) -> socket.socket:
    """A connection on which these bytes were sent."""
    host, port = served.base.removeprefix("http://").split(":")
    made = socket.create_connection((host, int(port)), WAIT_S)
    made.sendall(head)
    return made


MALFORMED = (
    b"Origin: http://[::1", b"Origin: //[", b"Origin: http://[v1.x]:8", b"Origin: \xff\xfe", b"Origin: http://a:b:c",
    b"Host: [::1", b"Host: [", b"Host: \xff", b"Host: a:99999999", b"Last-Event-ID: " + b"9" * 5000,
    b"Last-Event-ID: \xb2", b"Content-Length: \xb2", b"Content-Length: -1", b"Content-Length: " + b"9" * 400,
    b"Authorization: Bearer \xff\xfe", b"Authorization: Bearer", b"Cookie: =;=;\xff=[", b"Cookie: a=\"\\",
    b"Range: bytes=z", b"Sec-Fetch-Site: \xff", b"Transfer-Encoding: nothing", b"Accept-Encoding: \xff",
    b"Expect: 200-nothing",
)  # fmt: skip


@pytest.mark.parametrize("header", MALFORMED, ids=[str(each[:30]) for each in MALFORMED])
def test_malformed_headers_are_refused_and_never_fail_the_server(served: Served, client: httpx.Client, header: bytes):
    search = "x"
    if header.startswith(b"Last"):
        search = start(client, workload="dlrm-v2", cluster="h100:8", planner="size_greedy")
        assert list(events_of(client, search))[-1]["kind"] == "done"
    token, host = served.token.encode(), served.base.removeprefix("http://").encode()
    for number in range(40):
        path = (b"/", b"/api/kept", b"/api/searches/" + search.encode() + b"/events", b"/api/samples")[number % 4]
        lines = [(b"GET ", b"POST ")[number % 4 == 3] + path + b" HTTP/1.1", header, b"Connection: close"]
        lines += [b"Host: " + host] * (not header.startswith(b"Host"))
        lines += [b"Authorization: Bearer " + token] * (not header.startswith(b"Authorization"))
        with raw(served, b"\r\n".join(lines) + b"\r\n\r\n") as made:
            said = made.recv(12)
        assert said.startswith(b"HTTP/1.1 ")
        assert said[9:10] in b"234", (number, said)
        if header.startswith(b"Origin: http://[::1"):
            assert said[9:12] == b"403"
    assert client.get("/api/kept").status_code == 200


def test_connections_that_send_half_of_a_request_block_nobody_and_end(served: Served, client: httpx.Client):
    halves = [raw(served, b"GET / HTTP/1.1\r\nHost: 127" if number % 2 else b"") for number in range(160)]
    begun = time.monotonic()
    try:
        assert client.get("/api/kept").status_code == 200
        assert httpx.get(f"{served.base}/", timeout=WAIT_S).status_code == 401
        for half in halves:
            half.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionResetError):
                assert half.recv(1) == b""  # it has ended
        assert 5 < time.monotonic() - begun < 10 + WAIT_S / 2
        assert client.get("/api/kept").status_code == 200
    finally:
        for half in halves:
            half.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_nothing_outlives_the_server(number: signal.Signals):
    with serving() as served:
        with served.client() as client:
            start(client, **LONG)
            until(lambda: client.get("/api/searches").json()["searches"][0]["state"] != "queued")
        children = served.children()
        assert children
        served.process.send_signal(number)
        _, said = served.process.communicate(timeout=WAIT_S)
        assert served.process.returncode == (0 if number == signal.SIGINT else -number)
        assert "Traceback" not in said
        until(lambda: not any(map(is_running, children)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--host", "nowhere.invalid", "--allow-network"), "cannot listen on nowhere.invalid"),
        (("missing.json",), "cannot read 'missing.json'"),
        (("missing",), "'missing' is not there; to keep plans in a new folder of this name, write 'missing/'"),
    ],
)
def test_what_is_not_served(words: tuple[str, ...], said: str):
    command = [sys.executable, "-m", "recsmith", "serve", "--no-open", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_without_the_extra_one_sentence_says_what_to_install(tmp_path: Path):
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no', name='starlette')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "recsmith", "serve", "--no-open"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, env=os.environ | {"PYTHONPATH": path}
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "needs Starlette and uvicorn: pip install" in done.stderr
