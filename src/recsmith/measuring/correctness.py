"""Whether FBGEMM computes what PyTorch computes, on small cases of the same kind as measured ones."""

from recsmith._types import noun
from recsmith.adapters.installed import NO_DEVICE, require_fbgemm
from recsmith.errors import UsageError
from recsmith.hardware import SCALES
from recsmith.measuring.cases import Cases

CASES = 60  # they take seconds on a core; each optimizer and data type has six or more (docs/measurements.md)
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-3}  # relative to the largest value: fp32 sums thousands; fp16 has 11 bits


@noun
class KernelAgreement:
    """The largest relative differences over all cases of an optimizer and data type, after two steps."""

    optimizer: str
    data_type: str
    cases: int
    outputs: float
    weights: float

    @property
    def agrees(self) -> bool:
        """Whether outputs and weights both agree within rounding."""
        return max(self.outputs, self.weights) <= TOLERANCE[self.data_type]


def check(hardware: str, count: int = CASES, seed: int = 0) -> list[KernelAgreement]:
    """Compare FBGEMM with torch.nn.EmbeddingBag on `count` cases; a result for each optimizer and data type.

    Raises:
        UsageError: the hardware is neither cpu nor cuda, or there is no GPU.
        MissingExtra: PyTorch or FBGEMM is missing.
    """
    kind = hardware.partition(":")[0]
    if hardware != "cpu" and kind != "cuda":
        raise UsageError(f"hardware {hardware} computes no embeddings; check cpu or cuda")
    require_fbgemm(cuda=kind == "cuda")
    import torch

    from recsmith.hardware.pytorch_reference import compare

    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError(NO_DEVICE)
    cases = Cases(seed=seed, scale=SCALES["check"])
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(count):
        case = cases.case(number)
        difference = compare(case, torch.device(kind))
        found.setdefault((case.workload.optimizer, case.data_type), []).append((difference.outputs, difference.weights))
    return [
        KernelAgreement(
            optimizer=optimizer, data_type=data_type, cases=len(pairs),
            outputs=max(pair[0] for pair in pairs), weights=max(pair[1] for pair in pairs),
        )
        for (optimizer, data_type), pairs in sorted(found.items())
    ]  # fmt: skip
