"""Watchers: they check steps and may request an action (protocol.py)."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from recsmith._components import NAME, find, make, parsed
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw
from recsmith.training.seams import WATCHER

STATES = "watchers"  # key under which checkpoints keep watchers' states
METHODS = ("look", "to_raw", "from_raw", "close")


def watcher_of(spec: object) -> Any:
    """The watcher of a name or 'module:Class' with settings, or of a function of (step, loss, samples).

    Raises:
        UsageError: no watcher has this name, a setting is wrong, or the result is not a watcher.
    """
    name, settings = parsed(spec, "watchers")
    if not isinstance(find(WATCHER, name), type):
        spec = {NAME: "function", "function": name, **settings}
    made = make(WATCHER, spec, where="watchers")
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if missing or not isinstance(getattr(made, "every", None), int) or made.every < 1:
        lacks = f"no {' and no '.join(missing)}" if missing else "no `every`, steps between two looks"
        raise UsageError(f"watcher '{name}' has {lacks}; derive it from recsmith.training.watchers.protocol.Watcher")
    return made


class Watchers:
    """The watchers of a run on this rank, and their wishes that were not acted on yet."""

    def __init__(self, specs: Sequence[object]) -> None:
        self.specs = specs
        self.named: dict[str, Any] = {}
        self.wishes: dict[str, Any] = {}  # the first Wish of each kind
        self.rolled_back: Counter[int] = Counter()  # number of roll-backs, by step of the checkpoint
        self._deaf = set[str]()  # names of watchers that get no more lines
        self._last: Any = None  # the newest step that was checked
        self.times: Any = None  # RankTimes of the job, if its ranks are timed

    def watch(self, job: Any) -> None:
        """Watch a job from the states in its checkpoint, and have its next checkpoints keep the watchers' states."""
        from recsmith.training.job.resuming import BEFORE
        from recsmith.training.watchers.protocol import SeenLine

        job.keeps[STATES] = lambda: self.states() or None
        self.begin(job.progress.kept.get(STATES, {}), *job.progress.kept.get(BEFORE, ({}, "")))
        job.log.heard = lambda event, values: self.hear(SeenLine(event, values, job))

    def begin(self, states: Mapping[str, Raw], before: Mapping[str, Raw] | None = None, path: str = "") -> None:
        """Make the watchers and give them these states; if they exist already, nothing changes.

        before: states at the end of the training that the run starts from. path: of that training.
        """
        if self.named:
            return
        for spec in self.specs:
            name, _ = parsed(spec, "watchers")
            twins = sum(each == name or each.startswith(f"{name}#") for each in self.named)
            self.named[f"{name}#{twins + 1}" if twins else name] = watcher_of(spec)
        for name, raw in states.items():
            if name in self.named:
                self.named[name].from_raw(raw)
        for name, raw in (before or {}).items():
            if hasattr(self.named.get(name), "begin_after"):
                self.named[name].begin_after(raw, path)

    def leave(self) -> None:
        """Forget the job that was watched, so that its model leaves memory before the next one is made."""
        self._last = self.times = None
        for name, watcher in self.named.items():
            self._heard(name, _leave, watcher, "when its job was left")

    def __enter__(self) -> "Watchers":
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        for watcher in self.named.values():
            watcher.close(error)

    def look(self, seen: Any) -> None:
        """Let each watcher check a step (Seen), and collect its wish.

        Raises:
            RecSmithError: a watcher raised something, or returned something other than a Wish; the error names it.
        """
        begun, self._last = time.perf_counter(), seen
        for name, watcher in self.named.items():
            if seen.step % watcher.every == 0:
                self._heard(name, watcher.look, seen, f"at step {seen.step}")
        if self.times is not None:
            self.times.step(seen.waited_s, time.perf_counter() - begun)

    def look_before_saving(self) -> None:
        """Let watchers with `look_before_saving` check the last step once more; collects and raises as `look` does."""
        if self._last is not None:
            self._heard_by_all("look_before_saving", self._last, f"at step {self._last.step}")

    def look_at_end(self, job: Any) -> None:
        """Let watchers with `look_at_end` check the last step once more; collects and raises as `look` does."""
        if self._last is not None and self._last.job is job:
            self._heard_by_all("look_at_end", self._last, f"at the end, step {self._last.step}")

    def look_at_scores(self, seen: Any) -> None:
        """Let watchers with `look_at_scores` check an evaluation (SeenScores); collects and raises as `look` does."""
        self._heard_by_all("look_at_scores", seen, f"at the evaluation of step {seen.step}")

    def look_at_period(self, seen: Any) -> None:
        """Let watchers with `look_at_period` check a scored period (SeenPeriod); collects and raises as `look` does."""
        self._heard_by_all("look_at_period", seen, f"at period {seen.period}")

    def hear(self, line: Any) -> None:
        """Pass a log line (SeenLine) to watchers with `hear`; one that raises gets no more lines."""
        from recsmith.training.random_states import random_kept

        for name, watcher in self.named.items():
            hear = getattr(watcher, "hear", None)
            if hear is None or name in self._deaf:
                continue
            try:
                with random_kept():
                    hear(line)
            except Exception as error:
                self._deaf.add(name)
                said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                line.job.log.say({"note": f"watcher '{name}' cannot write ({said}); training goes on without it"})

    def _heard_by_all(self, method: str, seen: Any, where: str) -> None:
        for name, watcher in self.named.items():
            look = getattr(watcher, method, None)
            if look is not None:
                self._heard(name, look, seen, where)

    def _heard(self, name: str, look: Callable[[Any], Any], seen: Any, where: str) -> None:
        from recsmith.training.random_states import random_kept

        try:
            with random_kept():
                wish = look(seen)
        except RecSmithError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise RecSmithError(f"watcher '{name}' raised {said} {where}; mend it") from error
        if wish is None:
            return
        what = getattr(wish, "what", None)
        if not isinstance(what, str):
            raise RecSmithError(f"watcher '{name}' returned {type(wish).__name__}; return a Wish or None")
        self.wishes.setdefault(what, wish)

    def states(self) -> dict[str, Raw]:
        """The watchers' states for a checkpoint, by name."""
        return {name: raw for name, watcher in self.named.items() if (raw := watcher.to_raw()) is not None}

    def refresh(self, *parts: Any) -> str:
        """Call `refresh()` of each watcher and other part of a job that has it; returns what was done, for people."""
        able = [part for part in (*self.named.values(), *parts) if callable(getattr(part, "refresh", None))]
        for part in able:
            part.refresh()
        return f"refreshed {', '.join(type(part).__name__ for part in able)}" if able else "no component has refresh()"


def _leave(watcher: Any) -> None:
    if hasattr(watcher, "leave"):
        watcher.leave()
