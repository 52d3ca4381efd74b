"""Several models in one job (Purandare et al., "mu-TWO", MLSys 2023): one stream of batches, one exchange, one lookup.

settings.py says what a run names, members.py which runs these are and what they may not be, gains.py whether it pays:
none of them needs torch. model.py is the model of all members, sharding.py puts it on ranks and shows a member of it
as a job of its own, and loop.py trains.
"""
