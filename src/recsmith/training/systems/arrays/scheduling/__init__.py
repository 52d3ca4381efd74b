"""The scheduler of mu-TWO (Purandare et al., MLSys 2023) and its simulator, without torch.

graph.py is a training step as operations and what is done when activations are given up, timeline.py how that goes and
what memory it takes, scheduler.py which of them are given up and how many members run at once. profiling.py
makes graphs of models, and running.py does the actions: both import torch.
"""
