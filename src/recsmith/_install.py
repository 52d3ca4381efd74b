"""The install command for each optional package, shown if the package is missing.

Packages are written out as in the extras of pyproject.toml (a test compares them): a user who installed RecSmith from a
wheel has no checkout whose extras could be named.
"""

from importlib.util import find_spec

SOLVER = "pip install 'ortools>=9.12,<10'"
PARQUET = "pip install 'pyarrow>=20'"
TRAINING = "pip install 'torch>=2.11' 'pyarrow>=20' 'gymnasium>=1.0'"
CLUSTERING = "pip install 'scikit-learn>=1.5'"
TENSORBOARD = "pip install 'tensorboard>=2.18'"
MLFLOW = "pip install 'mlflow-skinny>=3.7'"
ONNX = "pip install 'onnx>=1.18' 'onnxscript>=0.5' 'onnxruntime>=1.22'"
WANDB = "pip install 'wandb>=0.22'"
WEB = "pip install 'starlette>=0.46' 'uvicorn>=0.34'"
RAY = "pip install 'ray>=2.52,<3'"
WATCHING = "pip install 'river>=0.26' 'datasketches>=5.2'"
PAIR = "pip install 'torch==2.13.*' 'fbgemm-gpu-cpu==1.8.*', or with a GPU 'fbgemm-gpu==1.8.*' in its place"
PER_PROBLEM = "pip install ./packages/recsmith-per-problem, in a checkout of RecSmith"
TRIO = (
    "pip install 'torch==2.13.*' 'fbgemm-gpu-cpu==1.8.*' tensordict torchmetrics==1.0.3 tqdm pyre-extensions "
    "and then pip install --no-deps torchrec==1.8.0 "
    "(with a GPU: pip install 'torch==2.13.*' 'torchrec==1.8.*' 'fbgemm-gpu==1.8.*')"
)


def has_solver() -> bool:
    """Whether OR-Tools is installed, which is part of the extra `solve`."""
    return find_spec("ortools") is not None
