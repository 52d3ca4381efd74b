"""Cases, and hardware that answers as a test tells it to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from recsmith.hardware import SCALES, Case, CaseScale, Measurement
from recsmith.workloads import AccessProfile, Feature, Table, Workload

PARTS = ("forward_s", "backward_s")


def group(
    *shapes: tuple[int, int, float, float], batch_size: int = 64, optimizer: Any = "sgd", data_type: Any = "fp32"
) -> Case:
    """A case of tables (rows, dim, pooling factor, zipf)."""
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, data_type=data_type,
              features=(Feature(name=f"t{i}", pooling_factor=pooling),), access=AccessProfile(zipf=zipf))
        for i, (rows, dim, pooling, zipf) in enumerate(shapes)
    )  # fmt: skip
    return Case(seed=0, number=1, workload=Workload(batch_size=batch_size, optimizer=optimizer, tables=tables))


def answer(case: Case, visit: int = 0, seconds: float = 1.0, **fields: Any) -> Measurement:
    """A measurement of a case that took so long, whatever the visit."""
    bins = (0,) * (17 * len(case.tables))
    words: dict[str, Any] = {
        "status": "ok",
        "forward_s": seconds,
        "backward_s": 2 * seconds,
        "probe_s": 1e-3,
        "probe_moved": 0.0,
    }
    return Measurement(**words | {"lookups": case.lookups, "unique_rows": case.lookups, "reuse_bins": bins} | fields)


class Stub:
    """Hardware that answers what a function of case and visit says."""

    name = "stub"
    device = "a test"
    versions = "recsmith 0"

    def __init__(self, say: Callable[[Case, int], Measurement] = answer, scale: CaseScale = SCALES["check"]) -> None:
        self.scale, self.say = scale, say
        self.asked: list[tuple[int, int]] = []

    def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
        """It takes all."""

    def measure(self, case: Case, visit: int = 0) -> Measurement:
        self.asked.append((case.number, visit))
        return self.say(case, visit)

    def measure_groups(self, cases: tuple[Case, ...], visit: int = 0, least: int = 4) -> Measurement:
        """The answers of the cases, added up."""
        found = [self.measure(case, visit) for case in cases]
        forward_s, backward_s = (sum(getattr(each, part) or 0.0 for each in found) for part in PARTS)
        return replace(found[0], forward_s=forward_s, backward_s=backward_s)
