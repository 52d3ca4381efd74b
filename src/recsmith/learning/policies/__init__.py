"""Training of learned planners on measured placements (docs/learned.md).

tasks.py         tasks of the shared pool, tables of training and of test apart
measured.py      what placements cost on hardware
environment.py   the placement environment under Gymnasium's interface
dreamshard.py    DreamShard: networks and training in one file (imports torch)
checkpoints.py   a run's folder: checkpoint, journal
learn.py         trains, judges on unseen tasks, writes the policy
"""
