"""Tables that are stored smaller, as a part of a run; without torch."""

from recsmith.training.seams.capabilities import IDS, TABLES, Capabilities, PlainPart

COMPRESSION = PlainPart("model.compression", Capabilities({TABLES, IDS}))
