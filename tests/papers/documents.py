"""The documents that are made from records: `make documents` writes them, a test holds them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from isthmus_papers import record
from isthmus_papers.drawing import Picture, list_pictures
from isthmus_papers.page import render_page
from isthmus_papers.recipe import find_recipes, list_cells, read_recipes
from isthmus_papers.show import TableRow, build_row, build_section, describe_counts, list_heads
from isthmus_papers.verdict import Records, assess

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images" / "results"
PAPERS = ("superfed", "superfed-v1", "floco", "fedsimsup")
SUMMARY = re.compile(r"\d+ of [\d,]+ published numbers run again:.*cannot be met")
BEGIN, END = "<!-- numbers: made by make documents -->", "<!-- numbers: end -->"
NUMBERS = re.compile(rf"\n*{BEGIN}.*{END}\n", re.DOTALL)
ABOUT = """
## Numbers

What it reached in the experiments behind published tables, beside what is printed there
([what the columns mean](../reproduction.md#run-them-again)).

"""


def list_documents(records: Records) -> Iterator[tuple[Path, str]]:
    """Yields each document's place, and what the records make of it."""
    pictures = {
        name: [(f"../images/results/{each.name}.svg", each.title) for each in found]
        for name, found in list_drawn(records).items()
    }
    for paper in PAPERS:
        sections = [build_section(each, each.choose(), records) for each in find_recipes([paper])]
        text = render_page(sections, records, "md", pictures=pictures)
        yield ROOT / "docs" / "results" / f"{paper}.md", text
    readme = ROOT / "README.md"
    summary = describe_counts(Counter(assess(cell, records).outcome for cell in list_cells()))
    yield readme, SUMMARY.sub(summary, readme.read_text())
    numbers = list_numbers(records)
    for page in sorted((ROOT / "docs" / "methods").glob("*.md")):
        text = page.read_text()
        methods = text.partition("\n")[0].removeprefix("# ").split(", ")
        rows = [row for method in methods for row in numbers.get(method, [])]
        yield page, NUMBERS.sub("", text).rstrip("\n") + "\n" + describe_numbers(rows)


def list_drawn(records: Records) -> dict[str, list[Picture]]:
    """Lists the figures of documents, by recipe."""
    return {name: list_pictures(r, r.choose(), records) for name, r in read_recipes().items()}


def list_numbers(records: Records) -> dict[str, list[tuple[str, str, TableRow]]]:
    """Lists what was run of each method: place and metric, and the cell as it is shown."""
    found: dict[str, list[tuple[str, str, TableRow]]] = {}
    for name, recipe in read_recipes().items():
        for cell in recipe.choose() if recipe.cells else []:
            row = build_row(assess(cell, records))
            if row.is_run:
                link = f"[{name}](../results/{name.partition('/')[0]}.md)"
                place = f"{link}, {cell.column}"
                found.setdefault(cell.method, []).append((place, cell.metric, row))
    return found


def describe_numbers(rows: Sequence[tuple[str, str, TableRow]]) -> str:
    """Says what was run of the methods of a page; nothing where nothing was."""
    if not rows:
        return ""
    heads = list_heads([row for _, _, row in rows])
    lines = [
        f"| | method | where | metric | {' | '.join(heads.values())} |",
        f"|---|---|---|---|{'---:|' * len(heads)}",
    ]
    for place, metric, row in rows:
        numbers = " | ".join(getattr(row, field) for field in heads)
        lines.append(f"| {row.mark} | {row.method} | {place} | {metric} | {numbers} |")
    return f"\n{BEGIN}\n{ABOUT}" + "\n".join(lines) + f"\n{END}\n"


def write_documents() -> None:
    """Writes every document that is not as the records have it."""
    records = record.read_all([record.find_shipped()])
    for path, text in list_documents(records):
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))
    drawn = {
        IMAGES / f"{each.name}.svg": each
        for found in list_drawn(records).values()
        for each in found
    }
    for place in set(IMAGES.glob("*.svg")) - set(drawn):
        place.unlink()
    IMAGES.mkdir(exist_ok=True)
    for place, picture in drawn.items():
        if not place.exists():
            picture.save(place)
            print(place.relative_to(ROOT))


if __name__ == "__main__":
    write_documents()
