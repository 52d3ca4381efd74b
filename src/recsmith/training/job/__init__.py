"""A job on one rank: what it consists of, how it is decided, sharded, saved, told and exported (imports torch).

The loop that trains it is loop.py beside this folder. preparing.py is the one preparation of a run, models.py builds
and sharded.py shards, plan.py makes the plan, job.py holds all of it while it trains; checkpoints.py writes what
resuming.py and going_on.py read.
"""
