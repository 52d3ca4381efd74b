"""What does a rule cost? Run: python examples/rules_for_tables.py."""

import recsmith
from recsmith import Constraints, TableRule


def main() -> None:
    """Plan with every sharding type, then with the large tables of Criteo kept whole."""
    free = recsmith.plan("criteo-kaggle", "h100:4").plan
    rule = TableRule(tables="cat_*", sharding_types=("table_wise", "data_parallel"))
    whole = recsmith.plan("criteo-kaggle", "h100:4", constraints=Constraints(rules=(rule,))).plan
    print(
        f"as it is best:     {free.cost.total_s * 1e6:.0f} us, at most {free.gap or 0:.1%} above the best of its space"
    )
    print(f"with whole tables: {whole.cost.total_s * 1e6:.0f} us, at most {whole.gap or 0:.1%} above the best so")


if __name__ == "__main__":
    main()
