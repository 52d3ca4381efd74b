"""The contract of training steps: for your own (set `pipeline`, as a run names it), and for RecSmith's."""

from pathlib import Path
from typing import Any

from recsmith.jobs.launch import launch
from recsmith.training import Run, RunData, RunModel
from recsmith.training.run import run_from_raw, run_to_raw

FEATURES = [{"name": name, "num_embeddings": size} for name, size in (("a", 40), ("b", 90))]
DATA = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES}
BATCH, BATCHES = 16, 6  # of a rank


class StepContract:
    """The contract of steps. Subclass it as a test class, and set `pipeline`. batches_a_step: batches of one step."""

    pipeline: Any
    batches_a_step = 1

    def test_it_keeps_the_contract_on_two_ranks(self, tmp_path: Path) -> None:
        """Every batch is trained once; ranks stay equal; the model can be called while the step pauses."""
        data = RunData(train={**DATA, "num_samples": 2 * BATCH * BATCHES}, batch_size=BATCH, shuffle=False)
        run = Run(
            data=data, output=str(tmp_path / "out"), model=RunModel(embedding_dim=8), checkpoint=None,
            pipeline=self.pipeline,
        )  # fmt: skip
        ranks = launch("recsmith.testing.steps:try_step", {"run": run_to_raw(run)}, ranks=2, names_modules=True)
        steps = BATCHES // self.batches_a_step
        for rank in ranks:
            assert len(rank["losses"]) == steps
            assert all(loss > 0 for loss in rank["losses"])
            assert rank["shapes"] == [[self.batches_a_step * BATCH, 1]] * steps
            assert rank["asked"] == [self.batches_a_step * BATCH] * steps
            assert rank["evaluated"] > 0
        assert sorted(sample for rank in ranks for sample in rank["samples"]) == list(range(2 * BATCH * BATCHES))
        assert ranks[0]["changed"]
        assert ranks[0]["dense"] == ranks[1]["dense"]


def try_step(run: dict[str, Any]) -> dict[str, Any]:
    """On a rank: train on all batches, with an evaluation in between; returns the values that the contract checks."""
    import torch

    from recsmith.training.job.agreement import Agreement
    from recsmith.training.job.starting import prepared
    from recsmith.training.steps import step_of

    made = run_from_raw(run, "the run")
    job, batches = prepared(made, Agreement())
    before = [parameter.detach().clone() for parameter in job.sharded.model.parameters()]
    step, outcomes, evaluated, last = step_of(job.sharded, made.pipeline), [], 0.0, list[Any]()

    def kept() -> Any:
        for batch in batches:
            last[:] = [batch]
            yield batch

    source = kept()
    while True:
        try:
            outcomes.append(step(source))
        except StopIteration:
            break
        if len(outcomes) == 2:
            step.pause()
            with torch.no_grad():
                loss, _ = job.sharded.model(last[0])
            evaluated = float(loss)
            step.resume()
    step.pause()
    job.log.close()
    dense = [p for name, p in job.sharded.model.named_parameters() if "embedding" not in name]
    return {
        "losses": [float(each.loss) for each in outcomes],
        "shapes": [list(each.logits.shape) for each in outcomes],
        "asked": [each.asked for each in outcomes],
        "samples": [int(i) for each in outcomes for place in each.places for i in place.samples.sample_ids],
        "changed": any(not torch.equal(a, b) for a, b in zip(before, job.sharded.model.parameters(), strict=True)),
        "dense": [parameter.detach().double().sum().item() for parameter in dense],
        "evaluated": evaluated,
    }
