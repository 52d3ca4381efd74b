"""What planners share: the state of the devices, longest-first placement, local search and plans side by side."""
