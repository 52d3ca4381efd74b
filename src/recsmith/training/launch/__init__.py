"""How a run starts: what it needs, ranks of this machine or of a launcher, and what it would do (dry run)."""
