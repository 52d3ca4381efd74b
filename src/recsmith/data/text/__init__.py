"""Rows of text as samples: CSV and JSON lines, plain or packed, with columns that a spec names."""
