"""What do placements of your own cost? Run: python examples/placements_of_your_own.py."""

import recsmith
from recsmith import Placement


def main() -> None:
    """Deal the tables out like cards, one device after the other, and compare with a search."""
    workload = recsmith.load_workload("criteo-kaggle")
    dealt = [
        Placement(table=table.name, sharding_type="table_wise", compute_kernel="fused", ranks=(number % 4,))
        for number, table in enumerate(workload.tables)
    ]
    mine = recsmith.price(workload, "h100:4", dealt)
    better = recsmith.plan(workload, "h100:4", start=mine).plan
    change = recsmith.diff(mine, better)
    print(f"dealt out: {mine.cost.total_s * 1e6:.0f} us, at most {mine.gap or 0:.0%} above the best")
    print(f"searched:  {better.cost.total_s * 1e6:.0f} us; {len(change.changes)} tables are placed differently")


if __name__ == "__main__":
    main()
