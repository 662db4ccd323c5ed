"""The contents of a report: the sections of the page in order, and the figures for print in them.

A new figure is a file in figures/ and an entry here: the page loops over SECTIONS, `isthmus figure`
over PRINT_FIGURES.
"""

from collections.abc import Mapping
from types import MappingProxyType

from isthmus.report.figures import (
    cost,
    cross,
    curves,
    gain,
    holdings,
    landscape,
    path,
    reliability,
    similarity,
    simplex,
)
from isthmus.report.section import PrintFigure, Section
from isthmus.report.tables import sections

SECTIONS = (
    Section("summary", "The result", sections.show_summary),
    Section("sure", "How sure is the difference", sections.show_differences),
    Section("rounds", "Over rounds, seconds and bytes", curves.show, curves.PRINT_FIGURES),
    Section("reliability", "How sure, how right", reliability.show, (reliability.PRINT_FIGURE,)),
    Section("gain", "Each client against training alone", gain.show, (gain.PRINT_FIGURE,)),
    Section("path", "Along the path from shared to own model", path.show, (path.PRINT_FIGURE,)),
    Section(
        "branches", "Shared network, own network, sum", similarity.show, (similarity.PRINT_FIGURE,)
    ),
    Section("simplex", "Where the clients are", simplex.show, (simplex.PRINT_FIGURE,)),
    Section("landscape", "The land around", landscape.show, (landscape.PRINT_FIGURE,)),
    Section("cross", "Each model on everybody's data", cross.show, (cross.PRINT_FIGURE,)),
    Section("worst", "The clients it serves worst", sections.show_worst),
    Section("newcomers", "Clients that joined afterwards", sections.show_newcomers),
    Section("holdings", "What the clients hold", holdings.show),
    Section("cost", "What it costs", cost.show),
    Section("trials", "What was tried", sections.show_trials),
    Section("settings", "Settings", sections.show_settings),
)
PRINT_FIGURES: Mapping[str, PrintFigure] = MappingProxyType(
    {
        print_figure.name: print_figure
        for section in SECTIONS
        for print_figure in section.print_figures
    }
)
