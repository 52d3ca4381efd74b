"""Ingestion beside training: processes that read, transform and batch what a rank trains on."""

from recsmith.feeding.feed import Feed, FeedFigures
from recsmith.feeding.settings import FeedSettings
from recsmith.feeding.status import FeedStatus, WorkerStatus, read_statuses, status_file

__all__ = ["Feed", "FeedFigures", "FeedSettings", "FeedStatus", "WorkerStatus", "read_statuses", "status_file"]
