"""TorchRec: the drop-in planner, conversion of plans both ways, and what a model asks for."""
