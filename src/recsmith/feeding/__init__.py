"""Data loading by separate workers, which read, transform and batch a rank's samples, locally or on a Ray cluster."""

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
