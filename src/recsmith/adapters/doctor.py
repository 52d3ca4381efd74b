"""Whether PyTorch, FBGEMM and TorchRec are installed and belong together (docs/decisions/0003)."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from recsmith.errors import MissingExtra

TRIO = {"torch": "2.13", "fbgemm_gpu": "1.8", "torchrec": "1.8"}  # module: the release that belongs to the others
PACKAGES = {"fbgemm_gpu": ("fbgemm-gpu-cpu", "fbgemm-gpu")}  # where the package is not called like its module
REMEDY = (
    "install the trio: pip install 'recsmith[torchrec-cpu]' and then pip install --no-deps torchrec==1.8.0 "
    "(with a GPU: pip install 'recsmith[torchrec]')"
)


def installed() -> dict[str, str | None]:
    """Version of each of the trio; None where it is not installed."""
    return {module: _version(module) for module in TRIO}


def _version(module: str) -> str | None:
    if find_spec(module) is None:
        return None
    for package in PACKAGES.get(module, (module,)):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"


def trouble(found: dict[str, str | None]) -> list[str]:
    """What is wrong with these versions, one sentence each; empty where they belong together."""
    missing = [f"{module} is not installed" for module, number in found.items() if number is None]
    wrong = [
        f"{module} is {number}; {TRIO[module]} belongs to the others"
        for module, number in found.items()
        if number is not None and not f"{number}.".startswith(f"{TRIO[module]}.")
    ]
    return missing + wrong


def require_torch() -> None:
    """Refuse to go on without the trio, or with one that does not belong together; the message says what to do."""
    wrong = trouble(installed())
    if wrong:
        raise MissingExtra(f"{'; '.join(wrong)}. This needs TorchRec: {REMEDY}")
