"""How long operations and copies take on a device, as far as schedules are compared by it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerRates:
    """Seconds of a launch; products and sums, bytes of memory, and bytes of the link to the host, a second.

    link: None where activations lie in the memory of the host already.
    """

    launch_s: float
    flops: float
    bandwidth: float
    link: float | None = None

    def seconds(self, flops: float, moved: float) -> float:
        """Of an operation that computes and moves so much; a view takes none."""
        return self.launch_s + max(flops / self.flops, moved / self.bandwidth) if flops or moved else 0.0


# A core of this project's machine: layers of gains.py take 8e-11 s a product of forward and backward, which are 6 flops
CPU = LayerRates(launch_s=5e-6, flops=7.5e10, bandwidth=1e10)
# 132 multiprocessors x 128 lanes x 2 x 1.98 GHz, fp32 without TF32; launch, memory and PCIe as in clusters/catalogue
# and costs/analytic.py, of PCIe the 0.68 that kernels reach (docs/cost-models.md)
H100 = LayerRates(launch_s=3.8e-6, flops=6.69e13, bandwidth=3.35e12, link=0.68 * 64e9)
