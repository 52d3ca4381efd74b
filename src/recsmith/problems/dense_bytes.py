"""What dense layers need of each rank beside its tables, by when it is alive; and that tables may rest meanwhile."""

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.plans.plan import Stash


@noun
class DenseBytes:
    """Bytes of each rank beside its tables, by when they are alive.

    fixed: always: weights, optimizer state and buckets of dense layers, the framework, and what nobody told apart.
    gradients: of dense layers, from their backward to their optimizer. activations: what layers keep of a batch, and
    the gradients of that. temporaries: of the dense optimizer's step. batch_apart: whether ids and embeddings of the
    local batch come on top; else a stated figure has them. apart: (W,) of each rank, always, beside what is fixed:
    state that an optimizer divides over ranks; empty where it divides none.
    """

    fixed: int = 0
    gradients: int = 0
    activations: int = 0
    temporaries: int = 0
    batch_apart: bool = True
    apart: tuple[int, ...] = ()

    def kept_free(self, batch: int) -> tuple[int, int]:
        """(bytes that tables leave free where they may rest while activations are alive, and where they may not).

        batch: of the local batch, its embeddings and their gradients. Each is a sum over phases, for a search adds up
        what tables take in all of them.
        """
        always = self.fixed + max(self.apart, default=0)
        beside = always + self.gradients + self.temporaries + (batch if self.batch_apart else 0)
        return beside, beside + self.activations


@noun
class Stashing:
    """That tables may rest, and what dense layers need meanwhile.

    what: weights, or on CPU weights and optimizer state. activations: bytes of a rank that dense layers keep between
    their forward and backward; None: by the estimate of a plain DLRM. dense_s: seconds of dense forward and backward,
    in which copies hide; None: nobody said. dense: what planning made of these and of the reserve.
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
