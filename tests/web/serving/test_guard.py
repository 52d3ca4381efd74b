"""Who may ask: the token, its session, the Host and the Origin; and what every answer says to a browser."""

from http.cookies import SimpleCookie

import httpx
import pytest
from support.served import ORIGIN, TOKEN, Client, client_of


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    found = SimpleCookie(answer.headers["set-cookie"])
    return {"cookie": "; ".join(f"{name}={each.value}" for name, each in found.items())}


def test_the_printed_address_opens_a_session(client: Client):
    answer = client.bare("GET", "/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    kept = answer.headers["set-cookie"].lower()
    assert "httponly" in kept
    assert "samesite=strict" in kept
    assert TOKEN not in kept
    assert client.bare("GET", "/api/kept", headers=cookie_of(answer)).status_code == 200
    assert client.bare("GET", "/", headers=cookie_of(answer)).headers["content-type"].startswith("text/html")


def test_sessions_do_not_see_each_other(client: Client, plan_text: str):
    first, second = (cookie_of(client.bare("GET", "/", params={"token": TOKEN})) for _ in range(2))
    client.bare("POST", "/api/files", content=plan_text, headers={**first, "origin": ORIGIN})
    counts = [len(client.bare("GET", "/api/kept", headers=each).json()["plans"]) for each in (first, second)]
    assert counts == [1, 0]


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/kept", "/api/openapi.json", "/nothing"])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"cookie": "recsmith-0=x"}])
def test_nobody_else_gets_in(client: Client, path: str, headers: dict[str, str]):
    assert client.bare("GET", path, headers=headers).status_code == 401
    assert client.bare("GET", path, params={"token": f"{TOKEN}x"}, headers=headers).status_code == 401
    assert "recsmith serve FOLDER" in client.bare("GET", "/", headers=headers).text  # what to do, in words


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"]
)
def test_names_of_other_hosts_are_refused(client: Client, host: str):
    answer = client.ask("GET", "/api/kept", headers={"host": host})
    assert answer.status_code == 421
    assert "Host" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1", "127.0.0.2:1", "[::1]:8000", "LOCALHOST"])
def test_this_machine_may_be_called_by_its_names(client: Client, host: str):
    assert client.ask("GET", "/api/kept", headers={"host": host}).status_code == 200


def test_on_a_network_addresses_are_hosts_and_other_names_are_not():
    client = client_of(host="0.0.0.0")
    assert client.ask("GET", "/api/kept", headers={"host": "10.0.0.1:80"}).status_code == 200
    assert client.ask("GET", "/api/kept", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:8001", "http://localhost:8000"])
def test_other_origins_are_refused(client: Client, origin: str):
    assert client.ask("GET", "/api/kept", headers={"origin": origin}).status_code == 403
    assert client.ask("GET", "/api/kept", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_browser_changes_something_with_its_origin_alone(client: Client):
    kept = cookie_of(client.bare("GET", "/", params={"token": TOKEN}))
    sample = {"tables": 3}
    assert client.bare("POST", "/api/samples", json=sample, headers=kept).status_code == 403
    assert client.bare("POST", "/api/samples", json=sample, headers={**kept, "origin": ORIGIN}).status_code == 201


@pytest.mark.parametrize("path", ["/", "/api/kept", "/nothing", "/api/plans/x"])
def test_every_answer_is_sealed(client: Client, path: str):
    headers = client.ask("GET", path).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_sessions_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    client = client_of(sessions=2, idle_s=100.0)
    kept = [cookie_of(client.bare("GET", "/", params={"token": TOKEN})) for _ in range(3)]
    assert [client.bare("GET", "/api/kept", headers=each).status_code for each in kept] == [401, 200, 200]
    for session in client.server.sessions.by_key.values():
        session.used -= 101
    assert client.bare("GET", "/api/kept", headers=kept[2]).status_code == 401


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2f..%2fapp.py", "/app.js/.."]
)
def test_no_address_leads_into_the_file_system(client: Client, path: str):
    answer = client.ask("GET", path)
    assert answer.status_code in (404, 200)
    assert "root:" not in answer.text
    assert "[project]" not in answer.text
