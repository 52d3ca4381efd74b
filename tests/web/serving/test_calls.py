"""Requests as operations see them."""

import asyncio
from typing import Any, cast

import pytest
from starlette.datastructures import QueryParams

from recsmith.web.serving.calls import Call
from recsmith.web.serving.settings import Refused


def test_work_on_an_answer_ends_once_its_client_has_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.web.serving.calls.LOOK_S", 0.001)
    ended: list[str] = []

    async def long_work() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")
        return "done"

    async def gone() -> bool:
        await asyncio.sleep(0)
        return True

    async def ask() -> None:
        call = Call(cast(Any, None), cast(Any, None), QueryParams(), "", has_gone=gone)
        with pytest.raises(Refused, match="nobody waits"):
            await call.while_heard(long_work())
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert ended == ["cancelled"]
