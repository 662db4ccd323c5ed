"""Published numbers beside ours, as a page and as a document: a part for each paper."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined

from isthmus.report.templates import render
from isthmus_papers.recipe import Paper, Preset, find_recipe
from isthmus_papers.show import MARKS, RecipeSection, TableRow, build_row, describe_counts
from isthmus_papers.verdict import Records, assess

LEGEND = (
    "Published: as printed. Ours: chosen as the paper chooses († on test data). Validated: "
    "chosen on validation data. Late: mean of the last ten evaluations. Differs: ours less "
    "published. ● reproduced: within a point, or twice the deviation over seeds; ▲ higher; "
    "▼ lower; · not run; × cannot run"
)


class Paragraph(NamedTuple):
    """A paragraph of a paper's story, and what it is about."""

    title: str
    text: str

    def belongs_to(self, sections: Sequence[RecipeSection]) -> bool:
        """Whether it is about one of these tables, or about no table in particular."""
        table = self.title.partition(",")[0]
        shown = {section.recipe.title.partition(":")[0] for section in sections}
        return table in shown or not table.startswith("Table ")


class PaperPart(NamedTuple):
    """One paper as it is shown."""

    paper: Paper
    summary: str
    story: tuple[Paragraph, ...]
    sections: tuple[RecipeSection, ...]


def render_page(
    sections: Sequence[RecipeSection],
    records: Records,
    suffix: str,
    preset: Preset = "paper",
    pictures: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType({}),
) -> str:
    """Render sections as a page (html) or a document (md).

    Pictures are source and title, by the names of recipes.
    """
    parts = []
    for paper, group in groupby(sections, key=lambda section: section.recipe.paper):
        inside = tuple(sorted(group, key=lambda section: not section.counts))  # figures at the end
        folder = inside[0].recipe.name.partition("/")[0]
        story = write_story(paper, folder, records, preset)
        about = tuple(paragraph for paragraph in story if paragraph.belongs_to(inside))
        parts.append(PaperPart(paper, _summarize(inside), about, inside))
    return render(
        f"reproduction.{suffix}",
        folder=Path(__file__).with_name("templates"),
        parts=parts,
        summary=_summarize(sections),
        legend=LEGEND,
        marks=MARKS,
        pictures=pictures,
    )


def _summarize(sections: Sequence[RecipeSection]) -> str:
    return describe_counts(sum((section.counts for section in sections), Counter()))


def write_story(
    paper: Paper, folder: str, records: Records, preset: Preset
) -> tuple[Paragraph, ...]:
    """Fill what came out into a paper's story; of what was not run it has no paragraph.

    In it `number(table, column, method)` is a cell as it is shown, a TableRow; a fourth argument
    names its metric, where the table has several. A line `# TITLE` begins a paragraph.
    """

    def number(table: str, column: str, method: str, metric: str = "") -> TableRow:
        cells = find_recipe(f"{folder}/{table}").choose([column], [method])
        found = next(cell for cell in cells if metric in ("", cell.metric))
        return build_row(assess(found, records, preset))

    templates = Environment(undefined=StrictUndefined, trim_blocks=True)
    told = templates.from_string(paper.story).render(number=number)
    parts = [part.partition("\n") for part in f"\n{told}".split("\n# ")[1:]]
    paragraphs = [Paragraph(title, " ".join(text.split())) for title, _, text in parts]
    return tuple(paragraph for paragraph in paragraphs if paragraph.text)
