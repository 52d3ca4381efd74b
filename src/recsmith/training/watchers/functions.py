"""Functions as watchers: `watchers: ["mine:watch"]`, called as watch(step, loss, samples)."""

from collections.abc import Callable

from recsmith._components import load
from recsmith.data import Batch
from recsmith.data.deduplication import expanded
from recsmith.training.watchers.protocol import Seen, Watcher, Wish


class FunctionWatcher(Watcher):
    """Calls a function with the step, the loss of this rank's batch, and its samples as they were read.

    A Wish that it returns is acted on. If it raises something, that is reported, it is no longer called on this rank,
    and training continues. function: 'module:function'. every: steps between two calls.
    """

    def __init__(self, *, function: str, every: int = 1) -> None:
        self.name = function
        self.function: Callable[[int, float, Batch], object] | None = load(function)
        self.every = every
        self._heard_nothing = False  # whether it was reported that an answer was not a Wish

    def look(self, seen: Seen) -> Wish | None:
        """Call the function once for each batch of the step."""
        asked: Wish | None = None
        for place in seen.outcome.places:
            answer = self._called(seen, expanded(place.samples))
            asked = asked or answer
        return asked

    def _called(self, seen: Seen, samples: Batch) -> Wish | None:
        if self.function is None:
            return None
        try:
            answer = self.function(seen.step, seen.loss, samples)
        except Exception as error:
            self.function = None
            seen.job.log.warn(f"watcher '{self.name}' raised {type(error).__name__}: {error} at step {seen.step:,}; it "
                              "is not called any more, and training goes on")  # fmt: skip
            return None
        if answer is None or isinstance(answer, Wish):
            return answer
        if not self._heard_nothing:
            self._heard_nothing = True
            seen.job.log.warn(f"watcher '{self.name}' returned {type(answer).__name__}; only a Wish is heard")
        return None
