"""How a run starts: what it requires, ranks started here or by a launcher, and what it would do (dry run)."""
