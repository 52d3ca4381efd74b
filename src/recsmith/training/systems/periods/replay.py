"""`recsmith bench online`: finds the best update for a stream by a replay of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.errors import UsageError
from recsmith.files import Raw, Source, decode, encode, source_text
from recsmith.jobs.launch import launch
from recsmith.jobs.log import write_message
from recsmith.training.launch.launching import engine_for_ranks, passing_on_signals
from recsmith.training.launch.prerequisites import check_run, lines_told, own_modules
from recsmith.training.launch.ranks import local_ranks
from recsmith.training.results.arms import OnlineResult, Replayed, judged
from recsmith.training.run import Run, load_run, names_modules, run_from_raw, run_to_raw
from recsmith.training.sources import open_source
from recsmith.training.systems.periods.arms import ARMS, first_judged, replay, with_update
from recsmith.training.systems.periods.source import PeriodSource

RANK = "recsmith.training.systems.periods.replay:replay_on_rank"
AHEAD = (1, 2, 4)  # periods after the newest trained one that are scored: they show the loss of an outdated model


def bench_online(
    run: Run | Source, folder: Source, *, settings: tuple[str, ...] = (), arms: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0, 1, 2), first: int | None = None, ahead: Sequence[int] = AHEAD,
    on_progress: Callable[[str], object] = lambda _: None,
) -> OnlineResult:  # fmt: skip
    """Learn the stream of a run by each arm from each seed, and decide which arm pays.

    Results that the folder holds already are not trained again.

    Args:
        run: a Run with data.periods, or its file.
        folder: of trained models and measured results.
        settings: 'key=value' that replace values of the run.
        arms: updates by name; None: incremental, a window of 3 periods, and future gradient with 3.
        seeds: of weights and sample order.
        first: the first period that counts; None: the first after every arm has learned in its own way.
        ahead: which periods after the newest trained one are scored; 1 is the next.
        on_progress: called with a line for each arm and seed.

    Raises what `train` raises.
    """
    made, arms = with_ahead(load_run(run, settings), ahead), dict(arms or ARMS)
    target, learned = Path(source_text(folder, "a folder")), [with_update(made, update) for update in arms.values()]
    pid: list[int] = []

    def hear(message: Any) -> None:
        if "pid" in message:
            pid[:] = [message["pid"]]
        elif "arm" in message:
            on_progress(message["arm"])

    with lines_told(run, settings), own_modules(learned[-1], run), passing_on_signals(pid), engine_for_ranks(made):
        check_run(made, local_ranks(made))
        counted = first_judged(arms) if first is None else first
        for each in learned:  # refuse before anything is trained
            source = open_source(each)
            if isinstance(source, PeriodSource) and counted >= source.periods:
                raise UsageError(
                    f"arms are judged from period {counted} on, and the last of the {source.periods} periods is "
                    f"{source.periods - 1}; give --first an earlier one, shorter data.periods, or arms of fewer periods"
                )
        given = {"run": run_to_raw(made), "arms": arms, "seeds": list(seeds), "folder": str(target)}
        results = launch(
            RANK, given, ranks=local_ranks(made), timeout_s=float("inf"), on_message=hear,
            names_modules=any(map(names_modules, learned)),
        )  # fmt: skip
    replays = [decode(Replayed, each, "a replay") for each in results[0]]
    return judged(replays, counted)


def with_ahead(run: Run, ahead: Sequence[int]) -> Run:
    """The run, which scores periods `ahead` of the newest trained one; UsageError if it has no periods."""
    if run.data.periods is None:
        raise UsageError("the run has no data.periods, so there is no stream to replay; say how long a period is")
    return replace(run, data=replace(run.data, periods=replace(run.data.periods, score_ahead=tuple(ahead))))


def replay_on_rank(run: Raw, arms: dict[str, Any], seeds: list[int], folder: str) -> list[Raw]:
    """Do all replays of a run on this rank of a job; returns them as JSON data."""
    from recsmith.adapters.rank_0 import from_rank_0
    from recsmith.training.rank import train_on_rank

    found = replay(
        run_from_raw(run, "the run"), arms, seeds, Path(folder), lambda each: train_on_rank(run_to_raw(each)),
        from_rank_0, lambda text: write_message({"arm": text}),
    )  # fmt: skip
    return [encode(each) for each in found]
