"""Features whose distinct bags alone are looked up, as a part of a run: what does not go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.seams.capabilities import BAGS, EXCHANGE, FORMATS, POOLED, TABLES, Capabilities, owns

AHEAD = "deduplicated features are padded to equal numbers of rows on all ranks when their batch trains"


@dataclass(frozen=True)
class Deduplicated:
    """Features whose distinct bags alone are looked up. decided: whether some are, which `auto` sees in the data."""

    owns: ClassVar[Capabilities] = Capabilities({TABLES, BAGS})
    needs: ClassVar[Capabilities] = Capabilities({POOLED, FORMATS})
    cures: ClassVar[Mapping[str, str]] = {
        POOLED: "rows of events are looked up once for each different id by model.index_dedup: on, which leaves "
        "nothing to save, so leave data.deduplicate out"
    }
    decided: bool = True
    label: str = "data.deduplicate"

    def refuses(self, other: Any, /) -> str | None:
        """Ids that cross ranks before bags are made equal in number, which is when their batch is looked up."""
        if self.decided and owns(other, EXCHANGE):
            return f"pipeline is sparse_dist, which this model cannot have: {AHEAD}; write pipeline: base"
        return None
