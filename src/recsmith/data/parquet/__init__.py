"""Parquet files and Arrow files (IPC), one column a feature, with a map of columns where they have other names."""

from recsmith.data.parquet.source import ParquetSource
from recsmith.data.parquet.spec import ParquetFeature, ParquetSpec

__all__ = ["ParquetFeature", "ParquetSource", "ParquetSpec"]
