"""Plans run as real TorchRec jobs on this machine, with the time and memory that they take."""
