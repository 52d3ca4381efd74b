"""Training of cost models (docs/learning.md). Only network.py and training.py import torch, when a model is trained."""
