"""What tables in files behind caches exclude: other parts of a run that cannot go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith._components import parsed
from recsmith.plans import Plan
from recsmith.sharding import KEY_VALUE
from recsmith.training.run.parts import CPU, PlannedTables
from recsmith.training.seams.capabilities import BAGS, COPIES, FP32_TABLES, ON_CPU, ROWS, Capabilities


@dataclass(frozen=True)
class OnDisk:
    """The first table that the plan keeps on disk, or None, and the run's row store."""

    table: str | None
    rows: Any

    @property
    def label(self) -> str:
        """How errors name this part: by the kernel of its tables."""
        return "plan: key_value" if self.table is not None else "plan: fused"

    def refuses(self, other: Any, /) -> str | None:
        """Refuse a CPU if tables are on disk and no folder is given, or a folder is given and no table is on disk."""
        name, settings = parsed(self.rows, "rows")
        if other is not CPU or (name == "tiered" and "cache" in settings):
            return None
        if self.table is not None and name != "tiered":
            return (
                f"table '{self.table}' is on disk in the plan (key_value), and rows is {name}; write rows: {{name: "
                "tiered, folder: FOLDER}"
            )
        if self.table is None and name == "tiered":
            return (
                "rows is tiered, and the plan keeps no table on disk (key_value); give rows.cache a share, and all "
                "pooled tables are, or plan with --kernels fused,dense,key_value"
            )
        return None


@dataclass(frozen=True)
class TablesInFile:
    """Tables that are kept in a file: all of them, or those that the plan keeps on disk."""

    owns: ClassVar[Capabilities] = Capabilities({ROWS})
    needs: ClassVar[Capabilities] = Capabilities({FP32_TABLES, BAGS, COPIES, ON_CPU})
    cures: ClassVar[Mapping[str, str]] = {
        FP32_TABLES: "give it fp32",
        ON_CPU: "leave rows out there, and plan with --kernels fused,dense,fused_uvm_caching",
    }
    all_of_them: bool = True
    label: str = "rows: tiered"

    def refuses(self, other: Any, /) -> str | None:
        """Refuse a plan that splits a table by columns, since the file keeps whole rows."""
        if isinstance(other, PlannedTables) and (odd := self._split_by_columns(other.plan)) is not None:
            return (
                f"table '{odd}' is split by columns in the plan, and rows: tiered keeps whole rows; use a plan of "
                "table_wise and row_wise"
            )
        return None

    def _split_by_columns(self, plan: Plan) -> str | None:
        """The first table in a file whose columns are split over ranks; None if there is none."""
        dims = {table.name: table.embedding_dim for table in plan.workload.tables if table.pooled or self.all_of_them}
        cut = [each for each in plan.placements if each.widths and each.widths != (dims.get(each.table),)]
        stored = [each.table for each in cut if self.all_of_them or each.compute_kernel == KEY_VALUE.name]
        return min((name for name in stored if name in dims), default=None)
