"""The columns of the tables, and the page that lists them."""

from pathlib import Path

import pytest

from isthmus.run.schema import TABLES, markdown

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_the_page_lists_the_columns_of_a_table_as_the_schema_does(name: str) -> None:
    section = PAGE.partition(f"\n## {name}.csv\n")[2].partition("\n## ")[0]
    assert "\n".join(markdown(TABLES[name])) in section
