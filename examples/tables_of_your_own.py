"""Plan a list of tables that is made in Python, and keep the plan. Run: python examples/tables_of_your_own.py."""

from pathlib import Path
from tempfile import TemporaryDirectory

import recsmith
from recsmith import Feature, Table, Workload

WORKLOAD = Workload(
    batch_size=4096,  # samples of a device and step
    optimizer="rowwise_adagrad",
    tables=(
        Table(
            name="user", num_embeddings=2_000_000, embedding_dim=64, features=(Feature(name="user", pooling_factor=1),)
        ),
        Table(
            name="item",
            num_embeddings=500_000,
            embedding_dim=64,
            features=(Feature(name="clicks", pooling_factor=20.0),),
        ),
    ),
)


def main() -> None:
    """Plan, save, load: what is read back is the same plan."""
    plan = recsmith.plan(WORKLOAD, "a100-80:4").plan
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "plan.json")
        recsmith.save_plan(plan, file)
        assert recsmith.load_plan(file).digest == plan.digest
    for placement in plan.placements:
        print(f"{placement.table}: {placement.sharding_type} on ranks {placement.ranks}")


if __name__ == "__main__":
    main()
