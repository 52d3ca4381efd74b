"""What deduplicated features exclude: other parts of a run that cannot go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.seams.capabilities import BAGS, EXCHANGE, FORMATS, POOLED, TABLES, Capabilities, owns

AHEAD = "deduplicated features are padded to equal numbers of rows on all ranks when their batch trains"


@dataclass(frozen=True)
class Deduplicated:
    """Features of which only distinct bags are looked up.

    decided: whether some are; false while `auto` has not yet read the data.
    """

    owns: ClassVar[Capabilities] = Capabilities({TABLES, BAGS})
    needs: ClassVar[Capabilities] = Capabilities({POOLED, FORMATS})
    cures: ClassVar[Mapping[str, str]] = {
        POOLED: "rows of events are looked up once for each different id by model.index_dedup: on, which leaves "
        "nothing to save, so leave data.deduplicate out"
    }
    decided: bool = True
    label: str = "data.deduplicate"

    def refuses(self, other: Any, /) -> str | None:
        """Refuse ids that cross ranks ahead: ranks agree on numbers of rows only when they look up a batch."""
        if self.decided and owns(other, EXCHANGE):
            return f"pipeline is sparse_dist, which this model cannot have: {AHEAD}; write pipeline: base"
        return None
