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
    Section("summary", "Results", sections.show_summary),
    Section("sure", "Differences between methods", sections.show_differences),
    Section("rounds", "Learning curves", curves.show, curves.PRINT_FIGURES),
    Section("reliability", "Calibration", reliability.show, (reliability.PRINT_FIGURE,)),
    Section("gain", "Gain over training alone", gain.show, (gain.PRINT_FIGURE,)),
    Section("path", "Path from shared to own model", path.show, (path.PRINT_FIGURE,)),
    Section("branches", "Shared and own networks", similarity.show, (similarity.PRINT_FIGURE,)),
    Section("simplex", "Simplex", simplex.show, (simplex.PRINT_FIGURE,)),
    Section("landscape", "Loss landscape", landscape.show, (landscape.PRINT_FIGURE,)),
    Section("cross", "Cross-client accuracy", cross.show, (cross.PRINT_FIGURE,)),
    Section("worst", "Worst clients", sections.show_worst),
    Section("newcomers", "Newcomers", sections.show_newcomers),
    Section("holdings", "Data of the clients", holdings.show),
    Section("cost", "Cost", cost.show),
    Section("trials", "Tuning", sections.show_trials),
    Section("settings", "Settings", sections.show_settings),
)
PRINT_FIGURES: Mapping[str, PrintFigure] = MappingProxyType(
    {each.name: each for section in SECTIONS for each in section.print_figures}
)
