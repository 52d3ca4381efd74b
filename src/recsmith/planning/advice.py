"""The time limit for advice on how to change a problem that has no plan, and a callback for the proof.

The proof answers the question; advice is extra, and each change that is tried takes as long as a small search.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

CPU_S = 1.5  # CPU seconds of this process for advice, so that the answer takes two: enough for some hundreds of tables
CUT_SHORT = "The search for a change that works was cut short."


@dataclass
class AdviceBudget:
    """The time for advice. ends: by time.perf_counter. on_proof(sentence): called at once when the proof is known."""

    ends: float = float("inf")
    on_proof: Callable[[str], object] | None = None
    cpu_s: float = field(default_factory=lambda: CPU_S)
    _begun: float | None = field(default=None, init=False)

    def proved(self, sentence: str) -> None:
        """Report the proof, and start the time for advice."""
        if self._begun is None:
            self._begun = time.process_time()
            if self.on_proof is not None:
                self.on_proof(sentence)

    def in_time(self) -> bool:
        """Whether time is left."""
        spent = 0.0 if self._begun is None else time.process_time() - self._begun
        return spent < self.cpu_s and time.perf_counter() < self.ends
