"""Rows as lines of CSV, without cells that a spreadsheet would compute as formulas."""

import csv
import io
from collections.abc import Iterable
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet computes begins with one of these
MARK = "'"  # what a spreadsheet takes for a sign that text follows


def format_lines(rows: Iterable[Iterable[Any]]) -> str:
    r"""Return rows as lines; text that begins like a formula and is no number gets a mark.

    >>> format_lines([["=1+1", "-0.5", -0.5, "a, b", None], ["'@", "@\nb"]])
    '\'=1+1,-0.5,-0.5,"a, b",\n\'\'@,\'@ b\n'
    """
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(map(_guard, row) for row in rows)
    return file.getvalue()


def parse_lines(lines: Iterable[str]) -> list[list[str]]:
    r"""Return the rows of lines.

    >>> parse_lines(['\'=1+1,-0.5,"a, b",', "''@,'a'"])
    [['=1+1', '-0.5', 'a, b', ''], ["'@", "'a'"]]
    """
    return [
        [_unguard(cell) for cell in cells] if MARK in line else cells
        for line in lines
        # The csv module refuses cells of more than 131,072 letters, as of very many classes.
        for cells in ([line.split(",")] if '"' not in line else csv.reader([line], strict=True))
    ]


def _guard(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text = " ".join(cell.splitlines()) if "\n" in cell or "\r" in cell else cell
    return MARK + text if text.lstrip(MARK).startswith(FORMULA) and not _is_number(text) else text


def _unguard(cell: str) -> str:
    marked = cell.startswith(MARK) and cell.lstrip(MARK).startswith(FORMULA)
    return cell.removeprefix(MARK) if marked else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
