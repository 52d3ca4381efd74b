"""`recsmith launch`: the job file that starts a run on a cluster."""

from pathlib import Path
from typing import Any, cast

import click

from recsmith.cli.options import count_option, force_option, read_time, size_value

SYSTEMS = ("slurm", "kubernetes", "torchx")
MADE = rb"#!/bin/bash|apiVersion|torchx run"  # first bytes of files that --output may overwrite


@click.command(name="launch")
@click.argument("run")
@click.option("--for", "system", type=click.Choice(SYSTEMS), required=True, help="Scheduler of the cluster.")
@count_option("--nodes", help="Number of machines (default: that of the run's plan, or one).")
@click.option("--hosts", metavar="2..3", help="Machines: the fewest and the most that train together (docs/launch.md).")
@count_option("--per-node", help="Ranks on each machine, one a device (default: as the plan or the run says).")
@click.option("--cpu", "on_cpu", is_flag=True, help="Ranks have no GPUs.")
@click.option("--name", default="recsmith", show_default=True, help="Name of the job.")
@click.option("--time", "time_s", callback=read_time, metavar="TIME", help="The longest that the job may run: 24h.")
@click.option(
    "--grace", callback=read_time, metavar="TIME", help="Time from the signal to stop to the kill (default: 60s)."
)
@count_option("--restarts", default=3, least=0, help="How often ranks that failed start again.")
@click.option("--memory", callback=size_value, metavar="SIZE", help="Memory of a machine, such as 512GiB.")
@count_option("--cpus", help="Cores of a machine.")
@click.option("--image", metavar="IMAGE", help="Containers' image, with RecSmith, torch, FBGEMM and TorchRec.")
@click.option("--volume", "volumes", multiple=True, metavar="CLAIM=PATH", help="Storage that all machines see there.")
@click.option("--queue", metavar="Q", help="Queue of Kueue, or partition of SLURM.")
@click.option("--scheduler", default="local_cwd", show_default=True, help="Of TorchX.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace a value of the run.")
@click.option("-o", "--output", metavar="FILE", help="Write to a file.")
@force_option
def launch_command(
    run: str, system: str, settings: tuple[str, ...], output: str | None, force: bool, **asked: Any
) -> None:  # fmt: skip
    """Print a job file that starts RUN on a cluster: a script for sbatch, objects for kubectl, or a TorchX command.

    Nothing is started. Paths in RUN are those that the machines see (docs/launch.md).

    \b
    recsmith launch run.yaml --for slurm --nodes 4 --per-node 8 --time 24h -o train.sbatch
    recsmith launch run.yaml --for kubernetes --image IMAGE --volume data=/data -o job.yaml
    recsmith launch run.yaml --for torchx --per-node 2 --cpu
    """
    from recsmith.files import check_target, write_text
    from recsmith.training.run import load_run

    check_target(output, inputs=[run], kind=MADE, force=force)
    made = load_run(run, settings)
    text = _text(made, run, system, settings, asked)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


def _text(made: Any, run: str, system: str, settings: tuple[str, ...], asked: dict[str, Any]) -> str:
    import shlex

    from recsmith.training.launch.manifests import kubernetes_objects, slurm_script, torchx_command

    place = _place(made, run, asked)
    if system == "slurm":
        return slurm_script(made, run, settings, place)
    if system == "torchx":
        return shlex.join(torchx_command(run, settings, place, asked["scheduler"])) + "\n"
    import yaml

    dump = cast(Any, yaml).safe_dump_all  # pyright knows the types of yaml only in part
    return str(dump(kubernetes_objects(made, place), sort_keys=False, width=120))


def _place(made: Any, run: str, asked: dict[str, Any]) -> Any:
    from recsmith.errors import UsageError
    from recsmith.training.launch.manifests import JobPlace, shape_of

    if asked["hosts"] is not None and asked["nodes"] is not None:
        raise UsageError("--hosts and --nodes both say how many machines the job has; leave --nodes out")
    fewest, most = _hosts(asked["hosts"])
    nodes, per_node = shape_of(made, asked["nodes"] or most, asked["per_node"])
    if fewest is not None:
        from recsmith.training.launch.hosts import check_hosts

        check_hosts(made, run, fewest, nodes, per_node)
    grace = {} if asked["grace"] is None else {"grace_s": int(asked["grace"])}
    return JobPlace(
        name=asked["name"], nodes=nodes, per_node=per_node, gpu=not asked["on_cpu"], time_s=asked["time_s"],
        restarts=asked["restarts"], memory_bytes=asked["memory"], cpus=asked["cpus"], image=asked["image"],
        volumes=tuple(map(_volume, asked["volumes"])), queue=asked["queue"], fewest=fewest,
        **grace,
    )  # fmt: skip


def _hosts(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    from recsmith.training.launch.hosts import hosts_of

    return hosts_of(text)


def _volume(text: str) -> tuple[str, str]:
    from recsmith.errors import UsageError

    claim, equals, path = text.partition("=")
    if not claim or not equals or not path:
        raise UsageError(f"'{text}' is no volume; write CLAIM=PATH, such as --volume clicks=/data")
    return claim, str(Path(path))
