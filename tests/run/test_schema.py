"""The columns of the tables, and the page that explains them."""

import re
from pathlib import Path

import pytest

from isthmus.run.schema import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_the_page_explains_the_columns_of_a_table_in_their_order(name: str) -> None:
    section = PAGE.partition(f"\n## {name}.csv\n")[2].partition("\n## ")[0]
    rows = section.partition("|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split("`")[1] for row in rows] == [column.name for column in TABLES[name]]
    for row, column in zip(rows, TABLES[name], strict=True):
        choices = re.findall(r"`(\w+)`", row.split(" | ")[1])
        assert not column.choices or choices == [each for each in column.choices if each]
