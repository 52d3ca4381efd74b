"""When a sparse copy is made anew; without torch."""

from recsmith._types import noun
from recsmith.errors import check_rules, too_small


@noun
class SparseRefresh:
    """When a sparse copy is made anew from the whole model.

    periods: after so many; none: only when an alarm asks for it (`watch: {actions: {ne: refresh}}`). first: period
    before which there is no copy. folder: of the copy, in the run's.
    """

    periods: int | None = 4
    first: int = 1
    folder: str = "sparse"

    def __post_init__(self) -> None:
        """Check ranges."""
        plain = self.folder.replace("-", "").replace("_", "").isalnum() and self.folder not in ("model", "checkpoints")
        check_rules(
            None
            if self.periods is None or self.periods > 0
            else f"watchers (sparse_copy): periods is {self.periods}; a copy is made anew each 1 or more of them: give "
            "1 or more, or null, which leaves it to alarms",
            too_small("watchers (sparse_copy): first", self.first, 1),
            None
            if plain
            else f"watchers (sparse_copy): folder is '{self.folder}'; give a plain name that the run does not use",
        )

    def why(self, since: int | None, *, asked: bool) -> str | None:
        """Why a copy is made anew; None where it is not. since: periods that it has been there for."""
        if since is None:
            return "for there was none"
        if asked:
            return "for an alarm asked for a refresh"
        return f"after {since} periods" if self.periods is not None and since >= self.periods else None
