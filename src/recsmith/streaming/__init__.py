"""Online monitoring of streams, without PyTorch: anomaly detectors for series, NAB's score of them, sketches of ids."""

from recsmith.streaming.detectors import detector_of
from recsmith.streaming.detectors.protocol import Detector
from recsmith.streaming.live_workload import live_workload
from recsmith.streaming.nab import NabScore, NabSeries, load_nab, nab_score
from recsmith.streaming.series import Alarm, AlarmingSeries, find_alarms
from recsmith.streaming.sketches import IdSketch

__all__ = [
    "Alarm", "AlarmingSeries", "Detector", "IdSketch", "NabScore", "NabSeries", "detector_of", "find_alarms",
    "live_workload", "load_nab", "nab_score",
]  # fmt: skip
