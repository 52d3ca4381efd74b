"""Which activations of a training step are kept, copied to the host, or computed again, without torch.

The scheduler of mu-TWO (Purandare et al., MLSys 2023) and its simulator: graph.py is a training step as operations and
what is done when activations are given up, timeline.py how that goes and what memory it takes, scheduler.py which of
them are given up, and how many fused models run at once.
"""
