"""Sparse copies of a trained model, made once or refreshed while the model keeps learning (docs/daily.md).

sparsify.py makes a sparse copy, and watcher.py makes one between the periods of a stream.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from recsmith._components import parsed, register
from recsmith.errors import UsageError
from recsmith.training.seams.system import WATCHER, System
from recsmith.training.systems.sparse.settings import Sparsified

if TYPE_CHECKING:
    from recsmith.training.run.run import Run

SPARSE_COPY = "sparse_copy"
register(WATCHER, SPARSE_COPY, "recsmith.training.systems.sparse.watcher:SparseCopies")


class Sparse(System):
    """The system that makes sparse copies of a model between periods (watcher `sparse_copy`)."""

    key = "watchers"
    cards: ClassVar[Mapping[str, Any]] = {"sparse": Sparsified}

    def check(self, run: "Run", *, launched: bool) -> None:
        """Refuse invalid settings of the watcher, and a run without periods."""
        for watcher in run.watchers:
            if parsed(watcher, "watchers")[0] != SPARSE_COPY:
                continue
            from recsmith.training.watchers import watcher_of

            watcher_of(watcher)
            if run.data.periods is None:
                raise UsageError(
                    f"watcher {SPARSE_COPY} makes copies between periods, and the run has no data.periods; say how "
                    "long a period is, or make a copy of what was trained (recsmith sparse)"
                )


SYSTEM = Sparse()
