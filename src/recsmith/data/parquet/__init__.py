"""Parquet files and Arrow files (IPC), one column a feature, with a map of columns where they have other names."""
