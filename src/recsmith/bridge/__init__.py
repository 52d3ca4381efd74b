"""TorchRec: the drop-in planner, conversion of plans both ways, local jobs, exactness and verification."""
