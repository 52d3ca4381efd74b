"""The bytes of each rank that are not for tables, by when they are alive; and the settings of stashing."""

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.plans.plan import Stash


@noun
class DenseBytes:
    """Bytes of each rank that are not for tables, by when they are alive.

    fixed: always alive: weights, optimizer state and buffers of dense layers, the framework, and whatever was stated
        without a time.
    gradients: of dense layers, from their backward pass to their optimizer.
    activations: what layers keep of a batch, and its gradients.
    temporaries: of the dense optimizer's step.
    batch_apart: whether ids and embeddings of the local batch are added; otherwise a stated figure includes them.
    apart: (W,) further fixed bytes of each rank: state that an optimizer divides over ranks; empty if it divides none.
    """

    fixed: int = 0
    gradients: int = 0
    activations: int = 0
    temporaries: int = 0
    batch_apart: bool = True
    apart: tuple[int, ...] = ()

    def kept_free(self, batch: int) -> tuple[int, int]:
        """Bytes that tables leave free, as a pair: if they may be stashed while activations are alive, and if not.

        batch: bytes of the local batch, its embeddings and their gradients. Each result is a sum over phases, because a
            search adds up the bytes of tables in all phases.
        """
        always = self.fixed + max(self.apart, default=0)
        beside = always + self.gradients + self.temporaries + (batch if self.batch_apart else 0)
        return beside, beside + self.activations


@noun
class Stashing:
    """Permission to stash tables in host memory, with the needs of dense layers in that time.

    what: weights, or on CPU weights and optimizer state.
    activations: bytes of a rank that dense layers keep between their forward and backward pass; None: by the estimate
        of a plain DLRM.
    dense_s: seconds of the dense forward and backward pass, which hide the copies; None if unknown.
    dense: the bytes that planning derived from these and from the reserve.
    """

    what: Stash = "weights"
    activations: int | None = None
    dense_s: float | None = None
    dense: DenseBytes | None = None

    def __post_init__(self) -> None:
        if self.activations is not None and self.activations < 0:
            raise UsageError(f"activations is {self.activations} bytes; give 0 or more")
        if self.dense_s is not None and self.dense_s < 0:
            raise UsageError(f"dense_s is {self.dense_s} seconds; give 0 or more")
