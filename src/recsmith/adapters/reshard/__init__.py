"""Moves a checkpoint of torch.distributed.checkpoint from the shards of one plan to those of another (docs/reshard.md).

    report = reshard("step-1000", "old.json", "new.json", "step-1000-new")      # reshard.py

inert_pickle -> stored: what a checkpoint holds; layout: where a plan's shards lie; table_entries, states: which entries
are a table's, and how optimizers name them; sources -> moves: what each shard of the new checkpoint is made of; items,
partial: making it, and the folder that grows until it is complete. torch is loaded by items and written_metadata alone.
"""
