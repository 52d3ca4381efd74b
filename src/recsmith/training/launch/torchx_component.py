"""The TorchX component `recsmith.train`: trains a run on any scheduler of TorchX. Imports TorchX.

    torchx run -s local_cwd recsmith.train --run run.yaml -j 1x2 -- data.batch_size=512
    torchx run -s slurm recsmith.train --run run.yaml -j 4x8 --gpu 8
    torchx run -s kubernetes -cfg queue=default recsmith.train --run run.yaml -j 4x8 --gpu 8 --image IMAGE

TorchX finds it through this package's entry points. These also list TorchX's own components, because TorchX stops
looking for components once any package has such entry points.
"""

# ruff: noqa: UP006, UP035, UP045  # TorchX reads annotations in this form alone
from typing import Dict, List, Optional

from torchx import specs
from torchx.components import dist


def train(
    *settings: str,
    run: str,
    j: str = "1x1",
    image: str = "",
    name: str = "recsmith",
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,  # noqa: N803
    h: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    max_retries: int = 0,
    mounts: Optional[List[str]] = None,
) -> specs.AppDef:
    """Train a run of RecSmith on one or more machines by torchrun.

    Args:
        settings: key=value settings applied to the run, after --
        run: path of the run file, as the machines see it
        j: machines and ranks on each, such as 4x8
        image: container image; for jobs without containers, the folder that they start in
        name: name of the job
        cpu: cores of a machine
        gpu: GPUs of a machine
        memMB: memory of a machine in MiB
        h: a resource that TorchX knows, instead of cpu, gpu and memMB
        env: environment variables
        max_retries: how often the scheduler may start the job again
        mounts: storage, in TorchX's format
    """
    more = [word for each in settings for word in ("--set", each)]
    return dist.ddp(
        "train", run, *more, m="recsmith", image=image, name=name, h=h, cpu=cpu, gpu=gpu, memMB=memMB, j=j, env=env,
        max_retries=max_retries, mounts=mounts,
    )  # fmt: skip
