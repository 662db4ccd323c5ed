"""The section about how sure the differences between methods are."""

from isthmus.report.contrasts import compare
from isthmus.report.figures import ranks
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables.formats import MISSING
from isthmus.report.tables.wording import COLUMNS, list_notes, list_ranks, print_rows


def show(report: Report) -> SectionContent | None:
    """Shows every method over its seeds, held against a reference."""
    comparison = compare(report.runs, report.reference)
    if all(len(block.rows) < 2 for block in comparison.blocks):
        return None
    tones = {id(run): tone for run, tone in zip(report.runs, report.tones, strict=True)}
    blocks = []
    for block in comparison.blocks:
        lines = print_rows(block)
        # A column without a single number says nothing; it is left out.
        filled = [i for i in range(len(COLUMNS)) if any(line[i] != MISSING for line in lines)]
        rows = [
            (tones[id(row.group.runs[0])], row, [line[i].split(" [") for i in filled])
            for row, line in zip(block.rows, lines, strict=True)
        ]
        blocks.append((block.name, [COLUMNS[i].short for i in filled], rows))
    values = {
        "reference": comparison.reference,
        "blocks": blocks,
        "ranks": list_ranks(comparison),
        "notes": list_notes(comparison),
    }
    if comparison.ranks is None:
        return SectionContent(values)
    drawn = ranks.plot(list_ranks(comparison), comparison.ranks.critical)
    return SectionContent(values, {"figure-ranks": drawn})
