"""Watchers: what looks at steps and may ask for something (protocol.py)."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from recsmith._components import NAME, find, make, parsed
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw
from recsmith.training.seams import WATCHER

STATES = "watchers"  # under which checkpoints keep what they keep
METHODS = ("look", "to_raw", "from_raw", "close")


def watcher_of(spec: object) -> Any:
    """The watcher of a name or 'module:Class' with settings, or of a function of (step, loss, samples).

    Raises:
        UsageError: nothing is called so, a setting is wrong, or what is made is no watcher.
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
    """The watchers of a run on this rank, and the wishes of theirs that nothing was done about yet."""

    def __init__(self, specs: Sequence[object]) -> None:
        self.specs = specs
        self.named: dict[str, Any] = {}
        self.wishes: dict[str, Any] = {}  # the first Wish of each kind
        self.rolled_back: Counter[int] = Counter()  # how often, by the steps of checkpoints
        self._deaf = set[str]()  # names of those that hear no more lines
        self._last: Any = None  # the newest step that was looked at
        self.times: Any = None  # RankTimes of the job that is trained, where its ranks are timed

    def watch(self, job: Any) -> None:
        """Watch the steps of a job, from what its checkpoint kept of each watcher; its next ones keep it, too."""
        from recsmith.training.job.resuming import BEFORE
        from recsmith.training.watchers.protocol import SeenLine

        job.keeps[STATES] = lambda: self.states() or None
        self.begin(job.progress.kept.get(STATES, {}), *job.progress.kept.get(BEFORE, ({}, "")))
        job.log.heard = lambda event, values: self.hear(SeenLine(event, values, job))

    def begin(self, states: Mapping[str, Raw], before: Mapping[str, Raw] | None = None, path: str = "") -> None:
        """Make the watchers, which go on from these states; those that are there already stay as they are.

        before: states at the end of the training at a path that the run starts from.
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

    def __enter__(self) -> "Watchers":
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        for watcher in self.named.values():
            watcher.close(error)

    def look(self, seen: Any) -> None:
        """Let each look at a step (Seen), and keep what it asks for.

        Raises:
            RecSmithError: a watcher raised something, or returned what is no Wish; its name is told.
        """
        begun, self._last = time.perf_counter(), seen
        for name, watcher in self.named.items():
            if seen.step % watcher.every == 0:
                self._heard(name, watcher.look, seen, f"at step {seen.step}")
        if self.times is not None:
            self.times.step(seen.waited_s, time.perf_counter() - begun)

    def look_at_end(self, job: Any) -> None:
        """Let each that wants look at the last step of a job once more; raises as `look` does."""
        if self._last is not None and self._last.job is job:
            self._heard_by_all("look_at_end", self._last, f"at the end, step {self._last.step}")

    def look_at_scores(self, seen: Any) -> None:
        """Let each that wants look at an evaluation (SeenScores), and keep what it asks for; raises as `look` does."""
        self._heard_by_all("look_at_scores", seen, f"at the evaluation of step {seen.step}")

    def look_at_period(self, seen: Any) -> None:
        """The same of a period that was scored (SeenPeriod)."""
        self._heard_by_all("look_at_period", seen, f"at period {seen.period}")

    def hear(self, line: Any) -> None:
        """Let each that wants hear of a line of the log (SeenLine). What it raises costs its lines, and not the run."""
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
        """What a checkpoint keeps, by the names of watchers."""
        return {name: raw for name, watcher in self.named.items() if (raw := watcher.to_raw()) is not None}

    def refresh(self, *parts: Any) -> str:
        """Call `refresh()` of those watchers and other parts of a job that have it; what was done, for people."""
        able = [part for part in (*self.named.values(), *parts) if callable(getattr(part, "refresh", None))]
        for part in able:
            part.refresh()
        return f"refreshed {', '.join(type(part).__name__ for part in able)}" if able else "no component has refresh()"
