"""The documents that are made from records: `make documents` writes them, a test holds them."""

import re
from collections.abc import Iterator
from pathlib import Path

from isthmus.reproduction import record
from isthmus.reproduction.page import render_page
from isthmus.reproduction.recipe import find_recipes, list_cells
from isthmus.reproduction.section import build_section, describe_counts
from isthmus.reproduction.verdict import Records, count_outcomes

ROOT = Path(__file__).parents[2]
PAPERS = ("superfed", "superfed-v1", "floco", "fedsimsup")
SUMMARY = re.compile(r"\d+ of [\d,]+ published numbers run again:[^.]*cannot\s+be\s+met")


def list_documents(records: Records) -> Iterator[tuple[Path, str]]:
    """Yields each document's place, and what the records make of it."""
    for paper in PAPERS:
        sections = [build_section(each, each.choose(), records) for each in find_recipes([paper])]
        yield ROOT / "docs" / "results" / f"{paper}.md", render_page(sections, records, "md")
    readme = ROOT / "README.md"
    summary = describe_counts(count_outcomes(list_cells(), records))
    yield readme, SUMMARY.sub(lambda found: fill_as(found[0], summary), readme.read_text())


def fill_as(before: str, text: str) -> str:
    """Puts text in the place of another; where it says the same, lines stay as they are."""
    return before if before.split() == text.split() else text


def write_documents() -> None:
    """Writes every document that is not as the records have it."""
    for path, text in list_documents(record.read_all([record.find_shipped()])):
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    write_documents()
