"""Commands around training jobs: `recsmith train`, `evaluate`, `export` and `feed`."""

import os
import time
from typing import Any

import click

from recsmith.cli.options import count_option, format_option, tell_run
from recsmith.cli.printing import is_watched, note, print_json, say, show_report
from recsmith.errors import RecSmithError, UsageError

WATCH_S = 2.0  # seconds between two updates of --watch: ranks write their status as often


@click.command(name="train")
@click.argument("run")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Replace a value of the run, such as data.batch_size=512; may be given several times.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show plan, memory, predicted step and files, and train nothing.")
@count_option("--max-restarts", least=0,
              help="Restarts of failed ranks, from the newest checkpoint (default: 0; with --hosts 3).")  # fmt: skip
@click.option("--hosts", metavar="2..3", help="The fewest and the most hosts that train together (docs/launch.md).")
@click.option("--join", is_flag=True, help="Join a running job with servers as another trainer (docs/remote.md).")
@click.option("--capture", metavar="FOLDER", help="Capture some steps for `recsmith predict`: --set capture=FOLDER.")
@format_option
def train_command(
    run: str, settings: tuple[str, ...], dry_run: bool, max_restarts: int | None, hosts: str | None, join: bool,
    capture: str | None, format_: str,
) -> None:  # fmt: skip
    """Train the model of RUN (a YAML or JSON file, '-' for stdin) on TorchRec.

    Started as it is, it uses this machine: a process for each GPU, or the run's `ranks` on CPU. Started by torchrun or
    srun, every process is a rank. A run that was ended continues from its newest checkpoint (docs/train.md).

    \b
    recsmith train run.yaml
    recsmith train run.yaml --set data.batch_size=512 --set optimizers.dense.learning_rate=0.01
    recsmith train run.yaml --dry-run
    recsmith train run.yaml --hosts 2..3                 # the same on each of three hosts, of which one may be lost
    torchrun --nproc-per-node 8 -m recsmith train run.yaml
    """
    if capture is not None:
        settings = (*settings, f"capture={capture}")
    if hosts is not None and (dry_run or join):
        raise UsageError(
            f"--hosts does not go with {'--dry-run' if dry_run else '--join'}; "
            f"{'give --set ranks=6 to see a job of so many ranks' if dry_run else 'leave one of them out'}"
        )
    if dry_run:
        from recsmith.training.launch.dry_run import described

        made = described(run, settings)
        if format_ == "json":
            print_json(made.to_raw())
            return
        for line in made.lines:
            click.echo(line)
        return
    if hosts is not None:
        from recsmith.training.launch.hosts import train_on_host

        train_on_host(run, settings, hosts, max_restarts, format_)
        return
    from recsmith.training.job.log import progress_text
    from recsmith.training.launch.launching import train

    result = train(
        run, settings=settings, max_restarts=max_restarts or 0, join=join, on_progress=lambda w: say(progress_text(w))
    )
    if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
        _show_result(result, format_)
    if "RANK" in os.environ:
        from recsmith.jobs.hosts.rank import in_hosts, leave_hosts
        from recsmith.jobs.worker import leave

        if in_hosts():
            leave_hosts(complete=result["complete"])

        # A rank in a launcher's job: gloo's own teardown sometimes aborts, and torchrun restarts a rank that fails.
        leave(0 if result["complete"] or "TORCHELASTIC_RUN_ID" in os.environ else RecSmithError.exit_code)
    if not result["complete"]:
        raise RecSmithError(f"a signal ended training after step {result['step']:,}; it is not complete")


def _show_result(result: dict[str, Any], format_: str) -> None:
    if format_ == "json":
        print_json(result)
        return
    state = "complete" if result["complete"] else "ended by a signal"
    click.echo(f"{result['step']:,} steps, {state}")
    for name, member in result.get("members", {}).items():
        _show_member(name, member)
    if result.get("test"):
        click.echo(f"test: {_scores_line(result['test'])}")
    if result.get("brought"):
        click.echo("what each system brought:")
        for said in result["brought"].values():
            click.echo(f"  {said}")


def _show_member(name: str, result: dict[str, Any]) -> None:
    """Print the scores of a member of an array, or why it ended."""
    if "ended" in result:
        click.echo(f"{name}: {result['ended']}")
    elif result.get("test"):
        click.echo(f"{name}: test: {_scores_line(result['test'])}")


def _scores_line(scores: dict[str, Any]) -> str:
    """One line of all scores, with undefined ones and their reason; scores per label follow if there are several."""
    from recsmith.scoring.scores import shown_scores

    left = f"; {scores['corrupt']:,} corrupt samples left out" if scores.get("corrupt") else ""
    return f"{shown_scores(scores)}, of {scores['samples']:,} samples{left}"


@click.command(name="evaluate")
@click.argument("folder")
@click.option("--data", metavar="PATH", help="Data to score, or the spec of it (default: data.test of the run).")
@count_option("--ranks", help="Processes (default: those of the run).")
@click.option(
    "--group", metavar="FEATURE", help="Rank samples with the same id of this feature (default: metrics.group)."
)
@click.option(
    "--pr-auc", is_flag=True, help="Also report the area under the precision-recall curve (default: metrics.pr_auc)."
)
@click.option("--at", type=int, multiple=True, metavar="K",
              help="Report hit rate and NDCG at K; may be repeated (default: metrics.at).")  # fmt: skip
@format_option
def evaluate_command(
    folder: str, data: str | None, ranks: int | None, group: str | None, pr_auc: bool, at: tuple[int, ...], format_: str
) -> None:  # fmt: skip
    """Score the trained model in FOLDER (the output of a run) on test data.

    \b
    recsmith evaluate runs/first
    recsmith evaluate runs/first --data criteo/day_23.tsv.gz --ranks 2 --format json
    recsmith evaluate runs/first --group user --at 1 --at 10
    """
    from recsmith.files import encode
    from recsmith.training.results.evaluation import evaluate

    tell_run(data)
    scores = encode(evaluate(folder, data=data, ranks=ranks, group=group, at=at, pr_auc=pr_auc, on_progress=say))
    if format_ == "json":
        print_json(scores)
    else:
        click.echo(_scores_line(scores))


def show_made(made: Any, scores: dict[str, Any], lines: list[str], format_: str) -> None:
    """Print what was made of a trained model, and the scores of the model before and after."""
    from recsmith.files import encode

    encoded = {name: encode(each) for name, each in scores.items()}
    if format_ == "json":
        print_json({**encode(made), "scores": encoded})
        return
    for line in (*lines, *(f"{name} model on --test: {_scores_line(each)}" for name, each in encoded.items())):
        click.echo(line)


@click.command(name="export")
@click.argument("folder", metavar="RUN")
@click.option("--for", "runtime", type=click.Choice(["torch", "onnx"]), default="torch", show_default=True,
              help="What runs the model: torch by recsmith.training.load_model, onnxruntime by load_onnx.")  # fmt: skip
@click.option("--tables", type=click.Choice(["fp32", "fp16", "int8"]), default="fp32", show_default=True,
              help="How rows of tables are stored: int8 has a scale and a bias for each row.")  # fmt: skip
@click.option("-o", "--output", required=True, metavar="DIR", help="A new folder for the model.")
def export_command(folder: str, runtime: Any, tables: Any, output: str) -> None:
    """Export a trained model to a folder with weights, vocabularies and transforms, which scores raw rows.

    \b
    recsmith export runs/first -o served
    """
    from recsmith.training.results.exporting import export_model
    from recsmith.units import counted

    columns = export_model(folder, output, tables=tables, runtime=runtime)
    note(f"written to {output}; it scores rows with {counted(len(columns), 'column')}: {', '.join(columns)}")


@click.group(name="feed")
def feed_command() -> None:
    """Look at the feed of a training job: the workers that read, transform and batch what its ranks train on."""


@feed_command.command(name="status")
@click.argument("run")
@click.option("--watch", is_flag=True, default=False, help="Look again every 2 s, until the feed ends or Ctrl-C.")
@format_option
def status(run: str, watch: bool, format_: str) -> None:
    """Show how the feed of RUN does, the folder that a training job writes to: throughput, waiting, and each worker.

    Ranks write their status every 2 s (feed/rank-R.json in the folder). `lag` is the time since a worker that is making
    a window last delivered a part of it. With --watch, `--format json` prints one line per update.

    \b
    recsmith feed status runs/first
    recsmith feed status runs/first --watch
    """
    try:
        while not _show_feed(run, format_, watch=watch) and watch:
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        if not watch:
            raise


def _show_feed(run: str, format_: str, *, watch: bool) -> bool:
    """Print the feed's present state; returns whether all its ranks have ended."""
    import json
    import sys
    from pathlib import Path

    from recsmith.feeding.status import read_statuses
    from recsmith.files import dump_json
    from recsmith.reports.data import feed_report, feed_to_raw

    statuses, now = read_statuses(Path(run)), time.time()
    if format_ == "json":
        raw = feed_to_raw(statuses, now)
        click.echo(json.dumps(raw) if watch else dump_json(raw).rstrip("\n"))
    else:
        if watch and is_watched(sys.stdout):
            click.clear()
        show_report(feed_report(run, statuses, now))
    return all(each.ended for each in statuses)
