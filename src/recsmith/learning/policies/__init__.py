"""Training of learned planners on measured placements (docs/learned.md).

tasks.py            tasks of the shared pool, tables of training and of test apart
settings.py         what is trained on: hardware, and tasks of which size
measured.py         what placements cost on hardware
training_tasks.py   tasks as training sees them, with each rule of what is split first
environment.py      the placement environment under Gymnasium's interface
cost_networks.py    the cost network with gradients, and what trainings share (imports torch)
dreamshard.py       DreamShard, from top to bottom (imports torch)
autoshard.py        AutoShard, from top to bottom (imports torch)
actors.py           its actors: started, asked, replaced when lost
actor.py            what an actor does
messages.py         arrays between learner and actors
checkpoints.py      a run's folder: checkpoint, journal
learn.py            trains, judges on unseen tasks, writes the policy
"""
