"""Ingestion beside training: workers that read, transform and batch what a rank trains on, here or on a Ray cluster."""

from recsmith.feeding.engines import EngineName, engine_of
from recsmith.feeding.feed import Feed, FeedFigures
from recsmith.feeding.status import FeedStatus, WorkerStatus, read_statuses, status_file
from recsmith.feeding.worker import FeedSettings

__all__ = [
    "EngineName",
    "Feed",
    "FeedFigures",
    "FeedSettings",
    "FeedStatus",
    "WorkerStatus",
    "engine_of",
    "read_statuses",
    "status_file",
]
