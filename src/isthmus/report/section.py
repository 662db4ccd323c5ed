"""What a page is about, and what a section of it and a figure for print are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from isthmus.report.figures import theme
from isthmus.report.figures.figure import Figure, View
from isthmus.report.figures.theme import Style
from isthmus.report.groups import Group, group_by_seed
from isthmus.report.tables import summary
from isthmus.report.tables.formats import DAGGER
from isthmus.report.tables.summary import SummaryRow
from isthmus.run.record import RecordedRun


class Report(NamedTuple):
    """The runs of a page, one by one and as groups over their seeds."""

    runs: Sequence[RecordedRun]
    rows: Sequence[SummaryRow]  # one per run
    groups: Sequence[Group]
    averages: Sequence[SummaryRow]  # one per group
    reference: str | None  # the method that was named to hold the others against

    @property
    def tones(self) -> list[str]:
        """The colours of the runs."""
        return theme.choose_colours(self.runs)

    @property
    def styles(self) -> list[Style]:
        """The styles of the groups."""
        return theme.choose_styles([group.runs[0] for group in self.groups])

    @property
    def several_seeds(self) -> bool:
        """Whether a group has more than one run."""
        return len(self.groups) < len(self.runs)

    def read_runs(self, read: Callable[[RecordedRun], Any]) -> "list[Panel]":
        """Return a panel for each run of which something is known."""
        each = enumerate(zip(self.runs, self.rows, self.tones, strict=True))
        return [
            Panel(place, tone, row, run, found)
            for place, (run, row, tone) in each
            if (found := read(run)) is not None
        ]


class Panel(NamedTuple):
    """What a section shows of one run."""

    place: int
    tone: str
    row: SummaryRow
    run: RecordedRun
    found: Any


def collect(runs: Sequence[RecordedRun], reference: str | None = None) -> Report:
    """Collect what the sections of a page have in common."""
    rows, groups = summary.summarize(runs), group_by_seed(runs)
    averages = summary.average_over_seeds(groups, rows)
    return Report(runs, rows, groups, averages, reference)


class SectionContent(NamedTuple):
    """What a section shows: the values that its template takes, and its figures by their ids."""

    values: Mapping[str, Any]
    figures: Mapping[str, Figure] = MappingProxyType({})


class FigureInput(NamedTuple):
    """What a figure for print is about."""

    runs: Sequence[RecordedRun]
    groups: Sequence[Group]
    styles: Sequence[Style]  # of the groups
    view: View
    model: str

    def read_groups(self, read: Callable[[RecordedRun], Any]) -> list[tuple[Group, Any]]:
        """Return the groups of whose first run something is known, each with that."""
        found = [(group, read(group.runs[0])) for group in self.groups]
        return [pair for pair in found if pair[1] is not None]

    def list_legend(self, shown: Sequence[bool]) -> list[tuple[str, Style]]:
        """Return the names and styles of the groups that are shown."""
        personal = self.model == "personal"
        return [
            (group.label + (DAGGER if group.runs[0].chosen_on_test and personal else ""), style)
            for group, style, drawn in zip(self.groups, self.styles, shown, strict=True)
            if drawn
        ]


class Drawing(NamedTuple):
    """A figure for print: values drawn side by side, and what to write under them."""

    figures: Sequence[Figure]
    caption: str
    shown: Mapping[str, str] = MappingProxyType({})  # the positions of switches
    choice: int = 0  # of what was measured, where the page has a list


@dataclass(frozen=True)
class PrintFigure:
    """A figure for print, as `isthmus figure` offers it."""

    name: str
    about: str
    build: Callable[[FigureInput], Drawing]
    ratio: float = 0.85  # of height to width
    metrics: tuple[str, ...] = ("top1",)


@dataclass(frozen=True)
class Section:
    """A section of the page, and its figures for print."""

    name: str  # the id on the page
    title: str
    show: Callable[[Report], SectionContent | None]  # None: there is nothing to show
    print_figures: tuple[PrintFigure, ...] = ()


def name_seed(group: Group) -> str:
    """Name the seed of a group's first run, where it has others."""
    return f" Seed {group.runs[0].seed}." if len(group.runs) > 1 else ""
