"""What a run needs of this machine, asked before anything starts."""

from recsmith.adapters.installed import require_torchrec
from recsmith.errors import UsageError
from recsmith.jobs.log import require_tensorboard
from recsmith.training.run import Run


def check_machine(run: Run, ranks: int) -> None:
    """Refuse a run for which something is missing here. ranks: of this machine.

    Raises:
        MissingExtra: TorchRec, or TensorBoard where the run wants it, is not installed.
        UsageError: the run asks for GPUs, and this machine does not have one for each of its ranks.
    """
    require_torchrec()
    if run.metrics.tensorboard:
        require_tensorboard("metrics.tensorboard")
    if run.device == "cuda":
        _check_gpus(ranks)


def _check_gpus(ranks: int) -> None:
    import torch

    found = torch.cuda.device_count()
    if found < ranks:
        seen = f"{found} of them" if found else "none"
        built = "" if torch.version.cuda else f", and this PyTorch ({torch.__version__}) is built without CUDA"
        raise UsageError(
            f"the run asks for device cuda, {ranks} ranks on this machine need a GPU each, and PyTorch sees {seen}"
            f"{built}; start fewer ranks, or leave device out to train on CPU"
        )
