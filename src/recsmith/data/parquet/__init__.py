"""Reads and writes Parquet and Arrow (IPC) files with one column per feature; a spec may map other column names."""
