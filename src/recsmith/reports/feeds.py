"""How the feed of a run does: as tables for people, and as plain data."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith.feeding.status import FeedStatus
from recsmith.files import Raw, encode
from recsmith.reports.layout import grid, line

FEED_SCHEMA = "recsmith/feed/1"


def feed_report(folder: str, statuses: Sequence[FeedStatus], now: float) -> RenderableType:
    """What the whole feed does, a row for each rank, and a row for each worker."""
    newest = max(statuses, key=lambda status: status.written)
    share = newest.used / newest.num_samples if newest.num_samples else 1.0
    return Group(
        line(
            "run", f"{folder}: {newest.used:,} of {newest.num_samples:,} samples of epoch {newest.epoch} ({share:.1%})"
        ),
        line("feed", _feed_words(statuses, now)),
        _ranks(statuses, now),
        _workers(statuses, now),
    )


def feed_to_raw(statuses: Sequence[FeedStatus], now: float) -> Raw:
    """The same as plain data; `age_s` of each rank says how long ago it was told."""
    live = _live(statuses, now)
    return {
        "schema": FEED_SCHEMA,
        "samples_per_s": sum(each.samples_per_s for each in live),
        "waiting": max((each.waiting for each in live), default=0.0),
        "ranks": [
            {**encode(each), "age_s": each.age_s(now), "silent": each.is_silent(now)} for each in statuses
        ],
    }  # fmt: skip


def _live(statuses: Sequence[FeedStatus], now: float) -> list[FeedStatus]:
    return [each for each in statuses if not each.ended and not each.is_silent(now)]


def _feed_words(statuses: Sequence[FeedStatus], now: float) -> str:
    lost, live = sum(each.lost for each in statuses), _live(statuses, now)
    replaced = f"; {lost:,} workers lost and replaced" if lost else ""
    if not live:
        return f"{'ended' if all(each.ended for each in statuses) else 'no rank tells any more'}{replaced}"
    rate, waiting = sum(each.samples_per_s for each in live), max(each.waiting for each in live)
    return f"{rate:,.0f} samples/s; the rank that waits most waits {waiting:.1%} of its time for data{replaced}"


def _ranks(statuses: Sequence[FeedStatus], now: float) -> RenderableType:
    made = grid(
        left=("rank", "engine", "process", "state"),
        right=("samples/s", "waiting", "waited", "ready", "windows", "workers", "lost"),
    )
    for each in statuses:
        made.add_row(
            str(each.rank), each.engine, each.process, _state(each, now), f"{each.samples_per_s:,.0f}",
            f"{each.waiting:.1%}", f"{each.waited_s:.1f} s", f"{each.ahead:,}", f"{each.windows:,}",
            str(len(each.workers)), str(each.lost),
        )  # fmt: skip
    return made


def _state(status: FeedStatus, now: float) -> str:
    if status.ended:
        return "ended"
    return f"silent for {status.age_s(now):.0f} s" if status.is_silent(now) else "feeding"


def _workers(statuses: Sequence[FeedStatus], now: float) -> RenderableType:
    made = grid(left=("rank", "worker", "place", "does"), right=("windows", "lag"))
    for each in _live(statuses, now):
        for worker in each.workers:
            does = "waits: enough is ready" if worker.window is None else f"window {worker.window}"
            made.add_row(
                str(each.rank), str(worker.number), worker.place or "starting", does, f"{worker.windows:,}",
                f"{worker.lag_s:.1f} s",
            )  # fmt: skip
    return made
