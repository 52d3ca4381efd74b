"""Optimizers by the names that TorchRec and FBGEMM give them."""

from enum import Enum

from recsmith.errors import UsageError
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName

# Names and values of EmbOptimType (fbgemm_gpu/split_embedding_configs.py, 1.8) that differ from RecSmith's words.
FBGEMM_NAMES: dict[str, OptimizerName] = {
    "exact_sgd": "sgd",
    "exact_adagrad": "adagrad",
    "exact_rowwise_adagrad": "rowwise_adagrad",  # the name
    "exact_row_wise_adagrad": "rowwise_adagrad",  # its value
    "partial_row_wise_adam": "partial_rowwise_adam",
}


def read_optimizer(optimizer: str | Enum) -> OptimizerName:
    """RecSmith's word for an optimizer: its own word, FBGEMM's name in upper or lower case, or an EmbOptimType.

    Raises:
        UsageError: the optimizer is not known; the message lists those that are.
    """
    word = str(optimizer.value if isinstance(optimizer, Enum) else optimizer).lower()
    if word in OPTIMIZERS:
        return OPTIMIZERS[word].name
    if word in FBGEMM_NAMES:
        return FBGEMM_NAMES[word]
    own, others = ", ".join(OPTIMIZERS), ", ".join(name.upper() for name in FBGEMM_NAMES)
    raise UsageError(f"no optimizer is called '{optimizer}'; known: {own}, and FBGEMM's {others}")
