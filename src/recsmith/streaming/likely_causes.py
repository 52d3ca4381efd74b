"""Texts of what an alarm may mean and where to look next, for signals of a job and for faults found by counts.

Alarms of column levels have their own texts (column_levels.py).
"""

COLUMNS = "an alarm of a column in the next 50 steps"
UP = {
    "loss": f"labels or samples may be of another source, or training diverges; look for {COLUMNS}, and where none "
            "comes at gradient_norm and the learning rate",
    "ne": f"labels may be of other rows, or training diverges; look for {COLUMNS}, and where none comes at "
          "gradient_norm and the learning rate",
    "calibration": "predictions are too high for the labels, of which some may be lost or late; look at how they are "
                   "joined",
    "gradient_norm": "values of a column may be far off, or the learning rate too high; look at the loss of the next "
                     "steps, and bound it by optimizers.dense.clip_norm",
    "step_s": "the machine may be shared with something else, or samples longer; look at `waiting`, and at what else "
              "runs there",
    "waiting": "data may come slower than it is trained on; look at the disk or network that holds it, and at what "
               "else runs on this machine",
    "imbalance": "ids of a sample may be more or fewer than they were planned for; look at `recsmith watch RUN --ids`, "
                 "or plan anew by watch.actions: {imbalance: replan}",
    "auc": "labels or samples may be of another source; look at what came in since then",
    "samples_per_s": "something else on the machine may have ended; nothing has to be done",
    "hot_set": "its traffic, its hash or its vocabulary may be another one; look at `recsmith watch RUN --ids`",
    "constant_feature": "it may not be filled any more; look at what fills it",
    "empty_feature": "it may not be filled any more, or be called otherwise; look at what fills it",
    "constant_dense": "it may not be filled any more; look at what fills it",
    "frequent_id": "it may stand for a missing one, or be a bot's; look at what fills it",
    "repeated_samples": "a worker may read its data again; look at how files are shared among workers",
    "flipped_labels": "they may be turned round; look at how they are made",
    "learning_rate": "a schedule or a setting of the resumed run may be another one; look at optimizers of run.json",
    "slow_rank": "its machine may be shared, throttled or far from the data; look at what else runs there",
}  # fmt: skip
"""Texts by kind if the value is higher than before, or if the fault has no direction."""
DOWN = {
    "calibration": "predictions are too low for the labels, of which negatives may be lost or sampled otherwise; look "
                   "at how samples are chosen",
    "loss": "labels may leak into a column, or samples be easier; look at what came in since then",
    "ne": "labels may leak into a column; look at what came in since then",
    "auc": "labels or columns may be of other rows, or training diverges; look at what came in since then, and at the "
           "learning rate",
    "samples_per_s": "the machine may be shared with something else, or data come slower; look at what else runs there",
}  # fmt: skip


def with_cause(text: str, kind: str, *, up: bool = True) -> str:
    """The sentence about an alarm, with its possible meaning and where to look appended if they are known."""
    cause = UP.get(kind) if up else DOWN.get(kind, UP.get(kind))
    return f"{text}: {cause}" if cause else text
