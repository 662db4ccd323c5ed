"""The section about how sure the differences between methods are."""

from collections.abc import Sequence

import plotly.graph_objects as go

from isthmus.records.reader import Run
from isthmus.report.contrasts import Block, Comparison, compare
from isthmus.report.figures.theme import ALONE, SERIES, colours, layout, numbers, plain
from isthmus.report.markup import escaped, plot, swatch
from isthmus.report.tables.summary import MISSING
from isthmus.report.tables.wording import COLUMNS, cells, notes, ranked


def section(runs: Sequence[Run], drawn: dict[str, go.Figure], reference: str | None = None) -> str:
    """Shows every method over its seeds, held against a reference."""
    comparison = compare(runs, reference)
    if all(len(block.rows) < 2 for block in comparison.blocks):
        return ""
    tones = {id(run): tone for run, tone in zip(runs, colours(runs), strict=True)}
    blocks = "".join(
        _table(block, len(comparison.blocks) > 1, tones) for block in comparison.blocks
    )
    said = "".join(f"<p class='caption'>{escaped(text)}</p>" for text in notes(comparison))
    return (
        "<p>Another seed, or other clients, would have given other numbers. The brackets say how "
        "other; the differences are taken client by client, each against itself under "
        f"{escaped(comparison.reference)}.</p>{blocks}{_ranking(comparison, drawn)}{said}"
    )


def _table(block: Block, named: bool, tones: dict[int, str]) -> str:
    lines = cells(block)
    # A column without a single number says nothing; it is left out.
    kept = [i for i in range(len(COLUMNS)) if any(line[i] != MISSING for line in lines)]
    head = "".join(f'<th scope="col">{"<br>".join(COLUMNS[i].short)}</th>' for i in kept)
    body = ""
    for row, line in zip(block.rows, lines, strict=True):
        printed = "".join(
            f"<td{' class=best' if i == 0 and row.best else ''}>"
            f"{escaped(line[i]).replace(' [', '<br>[')}</td>"
            for i in kept
        )
        name = f"{swatch(tones[id(row.group.runs[0])])}{escaped(row.label)}"
        body += f'<tr><th scope="row">{name}</th>{printed}</tr>'
    title = f"Methods over their seeds, on {escaped(block.name)}"
    return (
        f"<div class='card'>{f'<h3>{escaped(block.name)}</h3>' if named else ''}"
        f"<div class='scroll' tabindex='0' role='region' aria-label='{title}'>"
        f"<table class='summary'><caption class='unseen'>{title}</caption>"
        f'<thead><tr><th scope="col">method</th>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div></div>"
    )


def _ranking(comparison: Comparison, drawn: dict[str, go.Figure]) -> str:
    ranks = comparison.ranks
    if ranks is None:
        return ""
    drawn["figure-ranks"] = figure(ranked(comparison), ranks.critical)
    listed = ", ".join(f"{escaped(name)} {rank:.2f}" for name, rank in ranked(comparison))
    return (
        "<figure class='card'><h3>Average ranks over data sets</h3>"
        f"{plot('figure-ranks', 90 + 34 * len(ranks.labels), 'Average rank of each method')}"
        f"<figcaption>{listed}. Bars are as wide as the critical difference: two methods whose "
        "bars overlap are not told apart.</figcaption></figure>"
    )


def figure(ranks: Sequence[tuple[str, float]], critical: float) -> go.Figure:
    """Draws average ranks, best first, each with a bar as wide as the critical difference."""
    drawn = go.Figure(layout=layout())
    drawn.add_scatter(
        x=numbers([rank for _, rank in ranks]),
        y=[plain(name) for name, _ in ranks],
        mode="markers",
        marker={"color": SERIES[0][0], "size": 10},
        error_x={"array": numbers([critical / 2] * len(ranks)), "color": ALONE[0]},
        hovertemplate="<b>%{y}</b>: average rank <b>%{x:.3~g}</b><extra></extra>",
    )
    drawn.update_yaxes(autorange="reversed", showgrid=False)
    drawn.update_xaxes(title_text="average rank, 1 is best")
    return drawn
