"""Plan the tables of a CSV file, one row a table. Run: python examples/tables_from_csv.py."""

from pathlib import Path
from tempfile import TemporaryDirectory

import recsmith

CSV = """\
name,num_embeddings,embedding_dim,pooling_factor
user,2000000,64,1
item,500000,64,20
country,250,16,1
"""


def main() -> None:
    """A CSV file names no batch size, so it is given where the file is read."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tables.csv"
        file.write_text(CSV)
        workload = recsmith.load_workload(str(file), batch_size=4096, optimizer="adagrad")
    result = recsmith.plan(workload, "l4:4")
    print(f"{len(workload.tables)} tables: {result.plan.cost.total_s * 1e3:.2f} ms a step on four L4")


if __name__ == "__main__":
    main()
