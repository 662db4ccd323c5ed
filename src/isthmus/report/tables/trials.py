"""What was tried to choose settings, before the runs that a comparison reports."""

from collections.abc import Sequence

from isthmus.records.columns import columns
from isthmus.records.reader import Run
from isthmus.report import markup

SHOWN = ("method", "trial", "settings", "validation_loss", "validation_top1", "chosen")
HEAD = ("method", "trial", "settings", "validation loss", "validation top-1", "chosen")


def section(runs: Sequence[Run]) -> str:
    """Shows all trials of the comparisons that the runs belong to; nothing where there are none."""
    places = dict.fromkeys(run.path.resolve().parent.parent / "trials.csv" for run in runs)
    found = [columns(place, [*SHOWN, "seed", "failed"]) for place in places if place.is_file()]
    if not found:
        return ""
    lines = []
    for table in found:
        for i, failed in enumerate(table["failed"]):
            line = [table[name][i] for name in SHOWN]
            lines.append([*line[:3], "failed", *line[4:]] if failed else line)
    seeds = markup.listed(sorted({seed for table in found for seed in table["seed"]}))
    caption = "Every trial, with the figure that it was chosen by"
    return (
        f"<p>Each method had as many trials, with seed {markup.escaped(seeds)}. The one with the "
        "least mean loss of personal models on clients' validation parts, after the last round, "
        "gave the settings. Test parts played no role.</p>"
        f"<div class='card'>{markup.table(HEAD, lines, caption, words=2)}</div>"
    )
