"""How a rank's training ends: a last checkpoint, scores, and the exported model."""

from pathlib import Path

import torch
import torch.distributed as dist

from recsmith._process import proc_bytes
from recsmith.files import Raw, encode
from recsmith.jobs.log_lines import BROUGHT
from recsmith.scoring.scores import Scores
from recsmith.training.job.card import MODEL
from recsmith.training.job.export import export
from recsmith.training.job.job import TrainingJob, evaluate_now, over_ranks, save, write_once
from recsmith.training.job.links import step_line
from recsmith.training.seams.registry import systems
from recsmith.training.sources import data_digest


def finish(job: TrainingJob, *, ended: bool, test: Scores | None = None) -> Raw:
    """Save a last checkpoint, score and export; a job that a signal ended has saved already and exports nothing.

    test: scores on data.test, if they are known. The gains of systems are reported at the end.
    """
    result = _finished(job, ended=ended, test=test)
    said = brought(job)
    return {**result, "brought": said} if said else result


def _finished(job: TrainingJob, *, ended: bool, test: Scores | None) -> Raw:
    run, progress, log = job.run, job.progress, job.log
    if run.checkpoint is not None and not ended and progress.step > progress.saved:
        save(job)
    problem = job.checkpoints.finish()
    if problem:
        log.say({"note": f"the last checkpoint failed: {problem}"})
    if late := job.checkpoints.late_problem():
        log.say({"note": late})
    corrupt = over_ranks(progress.corrupt, dist.ReduceOp.SUM)
    result: Raw = {
        "step": progress.step, "complete": not ended, "sent_bytes": progress.sent_bytes, "peak_bytes": peak_bytes(),
        "corrupt": corrupt,
    }  # fmt: skip
    result |= {name: fact for system in systems() for name, fact in system.result(job).items()}
    if corrupt:
        log.say({"note": f"{corrupt:,} corrupt samples were left out; `recsmith data check` says which"})
    if ended:
        log.say({"note": f"asked to end: {_kept_line(job, failed=problem is not None)}"})
        return result
    if run.data.test is not None:
        result["test"] = encode(progress.test_now or evaluate_now(job, test))
    folder = job.output / MODEL
    export_model(job, folder, result.get("test"))
    if problem := job.checkpoints.publish_model(folder):
        log.say({"note": f"the model was not published: {problem}"})
    done = f"trained {progress.step:,} steps"
    if progress.step == progress.begun:
        done = f"nothing was left to train after step {progress.step:,}"
    log.say({"note": f"{done}; the model is in '{folder}'"})
    return result


def _kept_line(job: TrainingJob, *, failed: bool) -> str:
    """A line about what is kept of a job that a signal ended. failed: whether its last checkpoint was not written."""
    step = job.progress.step
    if job.run.checkpoint is None:
        return f"ended after step {step:,} with nothing saved, since the run has no checkpoint"
    if failed or job.progress.saved != step:
        return f"ended after step {step:,}, which could not be saved; the same command goes on from an older checkpoint"
    return f"saved after step {step:,}; the same command goes on from there"


def brought(job: TrainingJob) -> dict[str, str]:
    """The gain of each system of a job, a sentence by key of the run, and the step time; {} without systems."""
    said = {key: each for system in systems() for key, each in system.brought(job).items()}
    if said:
        progress, cluster = job.progress, job.plan.cluster
        step = step_line(progress.step_s, progress.told_s, cluster, dist.get_world_size())
        said = {**({"step": step} if step else {}), **said}
        write_once(job, BROUGHT, {"step": job.progress.step, "said": said})
    return said


def export_model(job: TrainingJob, folder: Path, test: Raw | None) -> None:
    """Export the current model with its card. test: its scores."""
    trained_on = {} if (digest := data_digest(job.source)) is None else {"trained_on": digest}
    export(job.sharded, job.run, job.source.schema, folder, {"step": job.progress.step, "test": test, **trained_on})


def peak_bytes() -> int:
    """Peak memory of the rank that used most: of its GPU, or resident."""
    on_gpu = torch.cuda.is_available()
    mine = torch.cuda.max_memory_allocated() if on_gpu else proc_bytes("self/status", "VmHWM")
    return over_ranks(mine, dist.ReduceOp.MAX)
