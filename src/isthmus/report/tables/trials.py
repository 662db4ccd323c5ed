"""The section about what was tried to choose settings, before the runs that are reported."""

from isthmus.report.section import Report, SectionContent
from isthmus.report.tables.formats import join_names
from isthmus.run.columns import columns

COLUMNS = ("method", "trial", "settings", "validation_loss", "validation_top1", "chosen")
HEAD = ("method", "trial", "settings", "validation loss", "validation top-1", "chosen")


def show(report: Report) -> SectionContent | None:
    """Shows all trials of the comparisons that the runs belong to; nothing where there are none."""
    places = dict.fromkeys(run.path.resolve().parent.parent / "trials.csv" for run in report.runs)
    tables = [columns(place, [*COLUMNS, "seed", "failed"]) for place in places if place.is_file()]
    if not tables:
        return None
    lines = []
    for table in tables:
        for i, failed in enumerate(table["failed"]):
            line = [table[name][i] for name in COLUMNS]
            lines.append([*line[:3], "failed", *line[4:]] if failed else line)
    seeds = join_names(sorted({seed for table in tables for seed in table["seed"]}))
    return SectionContent({"head": HEAD, "lines": lines, "seeds": seeds})
