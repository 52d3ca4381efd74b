"""Decides which activations of a training step are kept, copied to the host, or computed again, without torch.

The scheduler of mu-TWO (Purandare et al., MLSys 2023) and its simulator. graph.py describes a training step as
operations, and the actions for activations that are given up; timeline.py computes the time and memory of these
actions; scheduler.py chooses the activations that are given up, and how many fused models run at once.
"""
