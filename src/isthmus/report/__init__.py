"""What a run recorded, as tables, figures and one page: reads files only, needs no torch."""

from isthmus.run.record import RecordedRun, read

__all__ = ["RecordedRun", "read"]
