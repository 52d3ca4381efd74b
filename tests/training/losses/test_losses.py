"""What single losses are, which of them fit which labels, and what is wrong with tasks."""

from typing import Any

import numpy as np
import pytest

from recsmith.data import DataFeature, DataSchema
from recsmith.errors import UsageError
from recsmith.training import RunModel, RunTask
from recsmith.training.losses.settings import number_tasks, tasks_of

SCHEMA = DataSchema(
    features=(DataFeature(name="item", num_embeddings=9),), dense=(), labels=("clicked", "bought", "seconds"),
    missing_labels=("bought",), number_labels=("seconds",),
)  # fmt: skip
TASKS = (RunTask(label="seconds", loss="mse"), RunTask(label="bought", weight=2.0), RunTask(label="clicked"))


def told(*tasks: RunTask, schema: DataSchema = SCHEMA) -> str:
    with pytest.raises(UsageError) as error:
        tasks_of(tasks, schema)
    return str(error.value)


def test_tasks_stand_in_the_order_of_labels():
    assert [each.label for each in tasks_of(TASKS, SCHEMA)] == list(SCHEMA.labels)
    assert number_tasks(TASKS, SCHEMA) == ("seconds",)


def test_what_is_wrong_with_tasks_is_said_in_a_sentence():
    assert "label 'bought' may be missing" in told()
    assert "no such label; did you mean 'clicked'" in told(*TASKS, RunTask(label="cliked"))
    assert "label 'clicked' of the data has no task" in told(*TASKS[:2])
    wrong = told(RunTask(label="seconds"), *TASKS[1:])
    assert "label 'seconds' holds numbers, and binary learns labels of 0 to 1; write loss: mse" in wrong
    with pytest.raises(UsageError, match="no loss is called 'mae'"):
        RunTask(label="a", loss="mae")
    with pytest.raises(UsageError, match="weight of 'a' is -1; it must be above 0"):
        RunTask(label="a", weight=-1)
    with pytest.raises(UsageError, match="names label 'a' twice"):
        RunModel(tasks=(RunTask(label="a"), RunTask(label="a")))
    with pytest.raises(UsageError, match="leave one of them out"):
        RunModel(name="sasrec", loss="softmax", tasks=(RunTask(label="a"),))
    with pytest.raises(UsageError, match="missing_labels names 'b', which is no label"):
        DataSchema(features=(), dense=(), labels=("a",), missing_labels=("b",))


def test_pairwise_asks_how_often_the_wrong_sample_is_above(torchrec: None):
    import torch

    from recsmith.training.losses.by_sample import pairwise

    logits, labels = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1.0, 0.0, 0.0])
    pairs = -np.log(1 / (1 + np.exp(-(2.0 - np.array([-1.0, 0.5])))))
    assert pairwise(logits, labels).tolist() == pytest.approx([pairs.mean(), 0, 0])


def batch_of(labels: list[list[float]]) -> Any:
    from recsmith.data import Batch, JaggedIds
    from recsmith.training.batches import as_tensors
    from recsmith.training.tables.features import Features

    count = len(labels)
    ids = JaggedIds(values=np.zeros(count, np.int64), lengths=np.ones(count, np.int32))
    samples = Batch(
        dense=np.zeros((count, 0), np.float32), ids={"item": ids}, labels=np.array(labels, np.float32),
        label_names=SCHEMA.labels, sample_ids=np.arange(count),
    )  # fmt: skip
    return as_tensors(samples, Features(("item",)), asked=count + 1)  # a corrupt sample has its place, and no loss


def test_a_missing_label_has_no_loss_and_named_logits_find_their_labels(torchrec: None):
    import torch

    from recsmith.training.job.losses import TaskLosses

    nan, losses = float("nan"), TaskLosses(TASKS, SCHEMA)
    said = {"seconds": torch.tensor([5.0, 1.0, 0.0]), "clicked": torch.zeros(3), "bought": torch.ones(3)}
    loss, (_, logits, _, _) = losses(said, batch_of([[1, nan, 7], [0, 1, 1]]))
    bought = np.log1p(np.exp(-1.0))
    assert float(loss) == pytest.approx((2 * np.log(2) + 2.0 * bought + 4.0) / 3)
    assert logits.tolist() == [[0, 1, 5], [0, 1, 1]]
    with pytest.raises(UsageError, match="returns no logits of 'seconds', which the data has"):
        losses({"clicked": torch.zeros(3), "bought": torch.ones(3)}, batch_of([[1, 1, 1], [0, 1, 1]]))


def a_mean(logits: Any, labels: Any) -> Any:
    return (logits - labels).abs().mean()


def test_a_loss_of_yours_is_of_each_sample(torchrec: None, monkeypatch: pytest.MonkeyPatch):
    import torch

    from recsmith.training.job.losses import TaskLosses

    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
    losses = TaskLosses((RunTask(label="seconds", loss="test_losses:a_mean"), *TASKS[1:]), SCHEMA)
    with pytest.raises(UsageError, match=r"'seconds' \(test_losses:a_mean\) returned shape \(\) for 2 samples"):
        losses(torch.zeros(3, 3), batch_of([[1, 1, 1], [0, 1, 1]]))
    with pytest.raises(UsageError, match=r"loss of 'seconds'.gamma is no setting"):
        TaskLosses((RunTask(label="seconds", loss={"name": "mse", "gamma": 1}), *TASKS[1:]), SCHEMA)
