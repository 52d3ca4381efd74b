"""The compute kernels of TorchRec that plans may use, and where each keeps the rows of a table."""

from recsmith._types import noun


@noun
class Kernel:
    """A compute kernel: TorchRec's name, and where the weights live.

    in_host_memory: on the host, read over the link. cached: with a share of the rows in a cache on the device.
    """

    name: str
    in_host_memory: bool = False
    cached: bool = False

    @property
    def number(self) -> int:
        """Its place in KERNELS, by which arrays refer to it."""
        return KERNELS.index(self)


FUSED = Kernel(name="fused")  # lookup, and optimizer fused into backward, in device memory
DENSE = Kernel(name="dense")  # plain gradients for data_parallel copies
UVM = Kernel(name="fused_uvm", in_host_memory=True)
UVM_CACHING = Kernel(name="fused_uvm_caching", in_host_memory=True, cached=True)
KERNELS: tuple[Kernel, ...] = (FUSED, DENSE, UVM, UVM_CACHING)
KERNEL_NAMES: tuple[str, ...] = tuple(kernel.name for kernel in KERNELS)
HOST_KERNELS: tuple[str, ...] = tuple(kernel.name for kernel in KERNELS if kernel.in_host_memory)
