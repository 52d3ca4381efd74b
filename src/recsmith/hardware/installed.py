"""Whether PyTorch and FBGEMM are installed and belong together, asked without importing them."""

from importlib.metadata import PackageNotFoundError, version

from recsmith._version import __version__
from recsmith.errors import MissingExtra

PAIRS = {"1.6": "2.11", "1.7": "2.12", "1.8": "2.13"}  # FBGEMM release: the PyTorch it was built for
CPU_BUILD, CUDA_BUILD = "fbgemm-gpu-cpu", "fbgemm-gpu"
NO_DEVICE = "no CUDA device is visible to PyTorch; measure cpu, or simulated:h100"
REMEDY = "pip install 'recsmith[torchrec-cpu]', or with a GPU 'recsmith[torchrec]'"


def require_fbgemm(cuda: bool = False) -> str:
    """The versions in words; MissingExtra where FBGEMM cannot run here, with what to install."""
    torch, cpu_build, cuda_build = _version("torch"), _version(CPU_BUILD), _version(CUDA_BUILD)
    fbgemm = (cuda_build or cpu_build) if cuda else (cpu_build or cuda_build)
    if torch is None or fbgemm is None:
        missing = "torch" if torch is None else "fbgemm_gpu"
        raise MissingExtra(f"{missing} is not installed; measuring needs PyTorch and FBGEMM: {REMEDY}")
    if cuda and cuda_build is None:
        raise MissingExtra(f"{CPU_BUILD} {cpu_build} is the CPU build of FBGEMM; measuring a GPU needs {CUDA_BUILD}")
    wanted = PAIRS.get(_release(fbgemm))
    if wanted is not None and _release(torch) != wanted:
        raise MissingExtra(f"FBGEMM {fbgemm} was built for torch {wanted}, found {torch}; install a pair: {REMEDY}")
    return f"recsmith {__version__}, torch {torch}, fbgemm {fbgemm}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _release(number: str) -> str:
    """1.8 of 1.8.0+cpu."""
    return ".".join(number.split("+")[0].split(".")[:2])
