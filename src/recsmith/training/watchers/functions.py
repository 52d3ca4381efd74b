"""Functions as watchers: `watchers: ["mine:watch"]`, called as watch(step, loss, samples)."""

from collections.abc import Callable

from recsmith._components import load
from recsmith.data import Batch
from recsmith.data.deduplication import expanded
from recsmith.training.watchers.protocol import Seen, Watcher, Wish


class FunctionWatcher(Watcher):
    """Calls a function with the step, the loss of this rank's batch and its samples as they were read.

    What it returns is heard where it is a Wish. function: 'module:function'. every: steps between two calls.
    """

    def __init__(self, *, function: str, every: int = 1) -> None:
        self.function: Callable[[int, float, Batch], object] = load(function)
        self.every = every

    def look(self, seen: Seen) -> Wish | None:
        """Call it once for each batch of the step."""
        asked: Wish | None = None
        for place in seen.outcome.places:
            answer = self.function(seen.step, seen.loss, expanded(place.samples))
            asked = asked or (answer if isinstance(answer, Wish) else None)
        return asked
