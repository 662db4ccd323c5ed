"""What a run recorded, as tables, figures and one page: reads files only, needs no torch."""

from isthmus.records.reader import RecordedRun, read

__all__ = ["RecordedRun", "read"]
