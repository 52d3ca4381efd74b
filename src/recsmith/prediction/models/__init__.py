"""Models that are described by their sizes alone: what operators a step of each runs, without any trace."""
