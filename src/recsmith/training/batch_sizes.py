"""How many samples a rank takes in each step of a run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchSizes:
    """Sizes by the steps that were done before.

    ((0, 1024), (1000, 4096)): 1,024 samples in each of the first 1,000 steps, and 4,096 in those that follow.
    """

    changes: tuple[tuple[int, int], ...]

    @property
    def largest(self) -> int:
        """Samples of the largest step: what memory is planned for."""
        return max(size for _, size in self.changes)

    def at(self, step: int) -> tuple[int, int | None]:
        """(samples of the step that follows `step` others, steps until the size changes); None: it stays."""
        size = next(size for first, size in reversed(self.changes) if first <= step)
        ends = next((first for first, _ in self.changes if first > step), None)
        return size, None if ends is None else ends - step

    def steps(self, samples: int, epochs: int, ranks: int) -> int:
        """Steps of so many epochs, whose last step is left out where it would not be full."""
        step = 0
        for _ in range(epochs):
            left, over = samples, False
            while not over:
                size, more = self.at(step)
                full = left // (size * ranks)
                over = more is None or full < more
                made = full if more is None else min(full, more)
                step, left = step + made, left - made * size * ranks
        return step
