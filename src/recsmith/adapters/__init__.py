"""Adapters to TorchRec: the drop-in planner, conversion of plans both ways, and workloads read from models."""
