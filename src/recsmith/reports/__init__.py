"""Reports for people and programs: text tables and JSON."""
