"""Searches whose client has gone: they end, unless they were asked to stay."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("anyio", reason="the page needs Starlette, and Starlette needs AnyIO")

from recsmith import load_cluster, load_workload
from recsmith.clusters import cluster_to_raw
from recsmith.problems import Constraints, Space, constraints_to_raw
from recsmith.web.serving import search_process
from recsmith.web.serving.searches import Searches, SearchJob
from recsmith.web.serving.settings import Settings
from recsmith.workloads import workload_to_raw

ABSENT_S = 0.5
SLOW = {
    "workload": workload_to_raw(load_workload("nvidia-jumbo")), "cluster": cluster_to_raw(load_cluster("h100:8x16")),
    "constraints": constraints_to_raw(Space(), Constraints()), "planner": "auto", "cost_model": "analytic", "seed": 0,
    "iterations": None, "time_limit_s": 300.0, "start": None,
}  # fmt: skip


def searched(meanwhile: Callable[[SearchJob], Awaitable[Any]], *, stays: bool = False) -> SearchJob:
    """A search that takes minutes, after something has happened meanwhile."""

    async def run() -> SearchJob:
        searches = Searches(Settings(token="x", absent_s=ABSENT_S))
        search = searches.start("me", "", SLOW, lambda _: asyncio.sleep(0), stays=stays)  # type: ignore[arg-type]
        try:
            await meanwhile(search)
            return search
        finally:
            kinds = [event.kind for event in search.events]
            await searches.close()
            search.events[len(kinds) :] = []

    with ThreadPoolExecutor(1) as thread:  # Playwright keeps a loop running in the thread of tests
        return thread.submit(asyncio.run, run()).result()


async def wait(search: SearchJob, seconds: float = 60.0) -> None:
    ends = asyncio.get_running_loop().time() + seconds
    while not search.has_ended and asyncio.get_running_loop().time() < ends:
        await asyncio.sleep(0.05)


def test_a_search_whose_client_never_asks_again_is_cancelled():
    assert searched(wait).events[-1].kind == "cancelled"


def test_a_search_that_was_asked_to_stay_goes_on():
    assert not searched(lambda search: wait(search, 4 * ABSENT_S), stays=True).has_ended


def test_a_search_lives_as_long_as_somebody_listens():
    async def listen_and_leave(search: SearchJob) -> None:
        async def listen() -> None:
            async for _ in search.listen(-1):
                pass

        listening = asyncio.create_task(listen())
        await wait(search, 4 * ABSENT_S)
        assert not search.has_ended
        listening.cancel()
        await wait(search)

    assert searched(listen_and_leave).events[-1].kind == "cancelled"


def test_a_search_works_its_first_bound_out_once_and_tells_it_before_any_plan(monkeypatch: pytest.MonkeyPatch):
    bounds, told, worked_out = import_module("recsmith.bounds.first"), list[Any](), list[Any]()
    plain = bounds._best_of_lifts
    monkeypatch.setattr(bounds, "_best_of_lifts", lambda evaluator: worked_out.append(evaluator) or plain(evaluator))
    raw = SLOW | {
        "workload": workload_to_raw(load_workload("dlrm-v2")), "cluster": cluster_to_raw(load_cluster("h100:8")),
        "iterations": 1, "time_limit_s": None,
    }  # fmt: skip
    done = search_process.search(raw, told.append)
    assert [each["kind"] for each in told[:2]] == ["bound", "improved"]
    assert told[0]["bound_s"] <= done["plan"]["bound"]["value_s"]
    assert len(worked_out) == 1
