"""The section about settings: what the runs share, where they differ, how they ended."""

from isthmus.report.groups import SEEDED
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables.formats import MISSING, format_setting
from isthmus.run.record import labels

FACTS = {
    "status": "status",
    "rounds": "rounds done",
    "reason": "ended early",
    "digest": "digest of the result",
    "federation": "digest of the federation",
    "isthmus": "isthmus",
    "torch": "torch",
}


def show(report: Report) -> SectionContent:
    """Shows what the runs share and where they differ."""
    groups, runs = report.groups, report.runs
    every = {key for run in runs for key in run.settings}
    keys = sorted(every - SEEDED, key=lambda key: ("." in key, key))
    values = {key: [format_setting(group.runs[0], key) for group in groups] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    names = ["setting", *(group.label for group in groups)]
    differences = [["seed", *(", ".join(map(str, group.seeds)) for group in groups)]]
    differences += [[key, *values[key]] for key in differing]
    shared = [[key, values[key][0]] for key in keys if key not in differing]
    ends = [
        [name, *(str({"status": run.status, **run.summary}.get(key, MISSING)) for key in FACTS)]
        for name, run in zip(labels(runs), runs, strict=True)
    ]
    tables = [
        ("What differs between the runs", names, differences),
        ("What the runs share", ["setting", "value"], shared),
        ("How they ended, and digests to compare", ["run", *FACTS.values()], ends),
    ]
    return SectionContent({"tables": [table for table in tables if table[2]]})
