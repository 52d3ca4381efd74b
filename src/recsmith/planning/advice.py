"""How long to look for a change that helps once it is proved that there is no plan, and who hears of the proof before.

The proof is what was asked for; advice is more, and each change that is tried takes as long as a small search.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

CPU_S = 1.5  # seconds of this process that advice may take, so that the answer takes two: some hundreds of tables
CUT_SHORT = "The search for a change that works was cut short."


@dataclass
class AdviceBudget:
    """A budget for advice. ends: by time.perf_counter. on_proof(sentence): hears of the proof at once."""

    ends: float = float("inf")
    on_proof: Callable[[str], object] | None = None
    cpu_s: float = field(default_factory=lambda: CPU_S)
    _begun: float | None = field(default=None, init=False)

    def proved(self, sentence: str) -> None:
        """Tell the proof, and begin to count the time for advice."""
        if self._begun is None:
            self._begun = time.process_time()
            if self.on_proof is not None:
                self.on_proof(sentence)

    def in_time(self) -> bool:
        """Whether there is time left."""
        spent = 0.0 if self._begun is None else time.process_time() - self._begun
        return spent < self.cpu_s and time.perf_counter() < self.ends
