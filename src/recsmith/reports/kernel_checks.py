"""How far FBGEMM and PyTorch agree on small cases, as lines."""

from collections.abc import Sequence

from recsmith.measuring.compute.correctness import Agreement


def kernel_check_lines(found: Sequence[Agreement]) -> list[str]:
    """The largest relative differences of each optimizer and data type; those beyond rounding are called wrong."""
    return [
        f"{'optimizer':<16}{'weights':<9}{'cases':>5}  outputs differ by  updated weights by",
        *(
            f"{each.optimizer:<16}{each.data_type:<9}{each.cases:>5}{each.outputs:>17.1e}{each.weights:>20.1e}"
            f"{'' if each.agrees else '  WRONG'}"
            for each in found
        ),
    ]
