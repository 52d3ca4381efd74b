"""Reads CSV files and JSON lines, plain or .gz, as samples; a spec names their columns."""
