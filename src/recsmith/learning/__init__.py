"""Training of cost models on measurements (docs/learning.md).

    costs/    cost models of fused kernels: samples to groups, baselines, the network, its training
    comm/     models of all-to-alls: exchanges, baselines, the network, its training
    splits, scores, least_squares, training_loop    what both share

Only network.py, training.py and training_loop.py import torch, when a model is trained.
"""
