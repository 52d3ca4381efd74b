"""A job on one rank: its parts, and how it is decided, sharded, saved, logged and exported (imports torch).

The loop that trains it is ../loop.py. preparing.py is the one preparation of a run, models.py builds and sharded.py
shards, plan.py makes the plan, job.py holds everything during training; checkpoints.py writes what resuming.py and
going_on.py read.
"""
