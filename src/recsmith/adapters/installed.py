"""Checks that PyTorch, FBGEMM and TorchRec are installed in releases that fit together, without importing them.

Code that runs in TorchRec needs all three (`require_torchrec`); measuring kernels needs PyTorch and FBGEMM
(`require_fbgemm`). docs/decisions/0003 says why the releases must match.
"""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from recsmith import _install
from recsmith._version import __version__
from recsmith.errors import MissingExtra

TRIO = {"torch": "2.13", "fbgemm_gpu": "1.8", "torchrec": "1.8"}  # module: its release; the three fit together
TRIOS = (
    TRIO,
    {"torch": "2.14", "fbgemm_gpu": "1.9", "torchrec": "1.9"},
    {"torch": "2.11", "fbgemm_gpu": "1.6", "torchrec": "1.6"},
)
TRIED = {  # TorchRec's release: which tests of RecSmith were run with its trio; shown in the table of docs/torchrec.md
    "1.8": "all tests run with it",
    "1.9": "the tests of the drop-in and its jobs were run with it, on CPU",
    "1.6": "the tests of training jobs were run with it, on CPU",
}
PAIRS = {"1.6": "2.11", "1.7": "2.12", "1.8": "2.13", "1.9": "2.14"}  # FBGEMM release: the PyTorch it was built for
CPU_BUILD, CUDA_BUILD = "fbgemm-gpu-cpu", "fbgemm-gpu"  # packages that provide the module fbgemm_gpu
INSTALL_TRIO = f"install the trio: {_install.TRIO}"
INSTALL_PAIR = _install.PAIR
NO_DEVICE = "no CUDA device is visible to PyTorch; measure cpu, or simulated:h100"


def trio_versions() -> dict[str, str | None]:
    """Version of each module of TRIO: None if it is not installed, 'unknown' if its package has no metadata."""
    return {module: _module_version(module) for module in TRIO}


def _module_version(module: str) -> str | None:
    if find_spec(module) is None:
        return None
    packages = (CPU_BUILD, CUDA_BUILD) if module == "fbgemm_gpu" else (module,)
    return next((found for package in packages if (found := _package_version(package)) is not None), "unknown")


def _package_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def wanted_trio(found: dict[str, str | None]) -> dict[str, str]:
    """The trio of TRIOS that most of these versions match; the first one on a tie."""
    return max(TRIOS, key=lambda trio: sum(_belongs(number, trio.get(module)) for module, number in found.items()))


def _belongs(number: str | None, release: str | None) -> bool:
    return number is not None and _release(number) == release


def mismatches(found: dict[str, str | None]) -> list[str]:
    """One sentence for each module that is missing or of a wrong release; empty if the versions match a trio."""
    wanted = wanted_trio(found)
    missing = [f"{module} is not installed" for module, number in found.items() if number is None]
    wrong = [
        f"{module} is {number}; {wanted[module]} belongs to the others"
        for module, number in found.items()
        if number is not None and not _belongs(number, wanted[module])
    ]
    return missing + wrong


def tried(found: dict[str, str | None]) -> str:
    """A sentence on which tests of RecSmith were run with the trio that these versions match."""
    return TRIED[wanted_trio(found)["torchrec"]]


def require_torchrec() -> None:
    """Raise MissingExtra, with what to install, unless PyTorch, FBGEMM and TorchRec are present and fit together."""
    wrong = mismatches(trio_versions())
    if wrong:
        raise MissingExtra(f"{'; '.join(wrong)}. This needs TorchRec: {INSTALL_TRIO}")


def require_fbgemm(cuda: bool = False) -> str:
    """A text of the installed versions of PyTorch and FBGEMM; MissingExtra, with what to install, if they do not fit.

    cuda: whether the pair must be able to use a GPU.
    """
    torch, cpu_build, cuda_build = map(_package_version, ("torch", CPU_BUILD, CUDA_BUILD))
    fbgemm = (cuda_build or cpu_build) if cuda else (cpu_build or cuda_build)
    if torch is None or fbgemm is None:
        missing = "torch" if torch is None else "fbgemm_gpu"
        raise MissingExtra(f"{missing} is not installed; measuring needs PyTorch and FBGEMM: {INSTALL_PAIR}")
    if cuda and cuda_build is None:
        raise MissingExtra(f"{CPU_BUILD} {cpu_build} is the CPU build of FBGEMM; measuring a GPU needs {CUDA_BUILD}")
    wanted = PAIRS.get(_release(fbgemm))
    if wanted is not None and _release(torch) != wanted:
        raise MissingExtra(
            f"FBGEMM {fbgemm} was built for torch {wanted}, found {torch}; install a pair: {INSTALL_PAIR}"
        )
    return f"recsmith {__version__}, torch {torch}, fbgemm {fbgemm}"


def _release(number: str) -> str:
    """The release of a version: '1.8' of '1.8.0+cpu'."""
    return ".".join(number.split("+")[0].split(".")[:2])
