"""What a run recorded, as tables, figures and one page: reads files only, needs no torch."""

from isthmus.records.reader import Run, read

__all__ = ["Run", "read"]
