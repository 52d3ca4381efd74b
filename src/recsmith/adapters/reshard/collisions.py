"""Checks that a job under the new plan can load the id maps of managed-collision tables (zero collision hashing).

The map from ids to rows is sharded with the rows: TorchRec shards both row_wise, and a rank can load its part if its
rows begin and end at edges that the checkpoint knows. It saves them as `_output_segments_tensor`: the first rows of the
blocks of the job that wrote it, and the end of the table (validate_state of MCHManagedCollisionModule,
torchrec/modules/mc_modules.py, 1.8). Modules with buckets of ids save the number of buckets (`_hash_zch_bucket` of
hash_mc_modules.py). A job whose blocks do not match the edges fails when it loads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from recsmith.adapters.checkpoints import Checkpoint, Entry
from recsmith.adapters.reshard.layout import StoredLayout
from recsmith.errors import PlanMismatch

_REMAPS = re.compile(r"_managed_collision_modules\.(.+)\.(_output_segments_tensor|_hash_zch_bucket)")
SHOWN_EDGES = 9  # number of edges that an error lists


def check_collisions(stored: Checkpoint, after: Mapping[str, StoredLayout]) -> None:
    """Refuse a plan whose row blocks do not begin and end at edges of the id maps of managed-collision tables.

    after: the new plan's tables, by name.

    Raises:
        PlanMismatch: a table is not row_wise, or a block does not begin and end at edges.
        CorruptFile: the edges cannot be read.
    """
    for table, entry in _remapping_entries(stored.entries.values()):
        for layout in (each for each in after.values() if each.name == table):
            _check_blocks(layout, _edges(entry, layout, stored), entry)


def _remapping_entries(entries: Iterable[Entry]) -> Iterator[tuple[str, Entry]]:
    """Each entry that holds the edges or the number of buckets of a table's id map, with the table's name."""
    for entry in entries:
        found = _REMAPS.search(str(entry.path[-1])) if entry.dtype is not None else None
        if found:
            yield found[1], entry


def _edges(entry: Entry, layout: StoredLayout, stored: Checkpoint) -> list[int]:
    """Rows at which a block may begin or end, in order."""
    from recsmith.adapters.reshard.writing import read_whole_numbers

    numbers, rows = read_whole_numbers(entry, stored.folder), layout.table.num_embeddings
    if entry.key.endswith("_hash_zch_bucket"):
        buckets = max(1, *numbers)
        return [rows // buckets * bucket for bucket in range(buckets)] + [rows]
    return [number for number in numbers if number >= 0]  # the tensor is padded with -1


def _check_blocks(layout: StoredLayout, edges: Sequence[int], entry: Entry) -> None:
    name, kind = layout.table.name, layout.placement.sharding_type
    if kind != "row_wise":
        raise PlanMismatch(
            f"table '{name}' is {kind} in the new plan, and the checkpoint holds what remaps its ids by row "
            f"('{entry.key}'); plan it row_wise, as TorchRec shards managed collisions"
        )
    for block in layout.blocks:
        if not set(block.rows) <= set(edges):
            shown = ", ".join(map(str, edges[:SHOWN_EDGES])) + (", ..." if len(edges) > SHOWN_EDGES else "")
            raise PlanMismatch(
                f"table '{name}' remaps its ids, and rank {block.rank} of the new plan would hold rows {block.rows[0]} "
                f"to {block.rows[1]}, which lie across the edges of the checkpoint ({shown}, in '{entry.key}'): "
                "TorchRec refuses to load it; plan for a number of ranks whose row blocks begin and end at these edges"
            )
