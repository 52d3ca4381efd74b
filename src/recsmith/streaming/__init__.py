"""Streams as they come, without PyTorch: detectors of what is unusual in a series, and NAB's score of them."""

from recsmith.streaming.detectors import detector_of
from recsmith.streaming.detectors.protocol import Detector
from recsmith.streaming.nab import NabScore, NabSeries, load_nab, nab_score
from recsmith.streaming.series import Alarm, AlarmingSeries, find_alarms

__all__ = [
    "Alarm", "AlarmingSeries", "Detector", "NabScore", "NabSeries", "detector_of", "find_alarms", "load_nab",
    "nab_score",
]  # fmt: skip
