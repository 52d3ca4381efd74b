"""What people and programs read: text tables and JSON."""
