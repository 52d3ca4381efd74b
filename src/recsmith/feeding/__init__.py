"""Ingestion beside training: processes that read, transform and batch what a rank trains on."""

from recsmith.feeding.feed import Feed, FeedFigures
from recsmith.feeding.settings import FeedSettings

__all__ = ["Feed", "FeedFigures", "FeedSettings"]
