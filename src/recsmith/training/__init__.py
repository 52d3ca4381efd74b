"""Training of recommendation models on TorchRec: a run as a value, one loop, checkpoints that lose nothing."""
