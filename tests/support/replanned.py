"""A watcher that asks for another plan, as tests of jobs that go on under one name it."""

import recsmith
from recsmith.training.watchers.protocol import Seen, Watcher, Wish


class OtherPlan(Watcher):
    """Asks for a plan of a file after some step."""

    def __init__(self, *, plan: str, step: int = 5) -> None:
        self.plan, self.step, self.asked = plan, step, False

    def look(self, seen: Seen) -> Wish | None:
        """Ask once."""
        if seen.step != self.step or self.asked:
            return None
        self.asked = True
        return Wish("replan", "it is time", recsmith.load_plan(self.plan))
