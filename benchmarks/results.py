"""The results of benchmarks: ratios by name, as tables, JSON and a page."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from isthmus.system.machine import free_memory

OURS, ALONE, FEDAVG = "ours", "ours, 1 worker", "our FedAvg"
ON_RAY, BEFORE = "ours on Ray", "ours before"
PLAIN = {1: "plain loop, 1 process", 2: "plain loop, 2 processes"}
PEERS = {"flower": "Flower simulation", "pfl": "pfl"}
DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks" / "speed.md"


class Result(NamedTuple):
    """What one work took: median seconds by contender, and figures by name, mostly ratios."""

    title: str
    seconds: Mapping[str, float]
    figures: Mapping[str, float]
    notes: Sequence[str] = ()


def compute_ratios(seconds: Mapping[str, float]) -> dict[str, float]:
    """Compare everybody with us: above 1 we are faster, but for our own method and FedAvg.

    >>> compute_ratios({"ours": 2.0, "our FedAvg": 1.0, "pfl": 3.0})
    {'pfl / ours': 1.5, 'ours / our FedAvg on the same work': 2.0}
    """
    ours = seconds[OURS]
    others = (*PLAIN.values(), *PEERS.values(), ALONE, ON_RAY, BEFORE)
    ratios = {f"{name} / {OURS}": seconds[name] / ours for name in others if name in seconds}
    if FEDAVG in seconds:
        ratios[f"{OURS} / {FEDAVG} on the same work"] = ours / seconds[FEDAVG]
    return ratios


def describe_hardware() -> dict[str, Any]:
    """Describe the machine, and how busy it is."""
    model = platform.processor() or platform.machine()
    if (cpus := Path("/proc/cpuinfo")).is_file():
        named = [line for line in cpus.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(": ")[2] if named else model
    free = free_memory()
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "free memory, GB": round(free / 1e9, 1) if free else None,
        "load before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write_json(results: Mapping[str, Result], machine: Mapping[str, Any], rounds: int) -> str:
    """Map each work to its figures by name; then seconds, notes and the machine."""
    content: dict[str, Any] = {work: dict(result.figures) for work, result in results.items()}
    content["seconds"] = {work: dict(result.seconds) for work, result in results.items()}
    content["notes"] = [note for result in results.values() for note in result.notes]
    content["hardware"] = dict(machine)
    content["rounds"] = rounds
    return json.dumps(content, indent=2) + "\n"


def make_rows(columns: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Put figures into rows by name, one cell per column; empty where there is none.

    >>> make_rows({"W1": {"a": 1.234}, "W2": {"a": 2.0, "b": 123.4}})
    [('a', '1.23', '2.00'), ('b', '', '123')]
    """
    names = dict.fromkeys(name for column in columns.values() for name in column)
    return [
        (name, *(_cell(column[name]) if name in column else "" for column in columns.values()))
        for name in names
    ]


def _cell(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def make_table(title: str, columns: Mapping[str, Mapping[str, float]]) -> Table:
    """Make a table for the terminal."""
    table = Table("", *columns, title=title, title_justify="left", box=None)
    for row in make_rows(columns):
        table.add_row(*row)
    return table


def write_page(
    results: Mapping[str, Result], machine: Mapping[str, Any], rounds: int, day: date
) -> str:
    """Write the page of the documentation."""
    works = [f"| {work} | {result.title} |" for work, result in results.items()]
    notes = [f"- {note}" for result in results.values() for note in result.notes]
    lines = [
        "# Speed, measured",
        "",
        f"{day.isoformat()}. Medians of {rounds} rounds after one that warms up; everybody takes",
        "turns, round by round. Seconds hold for this machine; ratios travel better.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in machine.items()),
        "",
        "```sh",
        f"python -m benchmarks speed {' '.join(results)} --rounds {rounds} --docs",
        "```",
        "",
        "| work | |",
        "|---|---|",
        *works,
        "",
        "## Ratios",
        "",
        *_make_markdown({work: result.figures for work, result in results.items()}),
        "",
        "## Seconds a round",
        "",
        *_make_markdown({work: result.seconds for work, result in results.items()}),
        "",
        *notes,
        *([""] if notes else []),
        *EXPLAINED.splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _make_markdown(columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    kept = {name: column for name, column in columns.items() if column}
    return [
        f"| | {' | '.join(kept)} |",
        f"|---|{'---:|' * len(kept)}",
        *(f"| {' | '.join(row)} |" for row in make_rows(kept)),
    ]


EXPLAINED = """\
## Who takes part

- Ours: the engine with as many workers as there are cores, and with one. Rounds without
  evaluation, the state in memory.
- The plain loop (`benchmarks/plain.py`): PyTorch as one writes it by hand, an `nn.Module`, autograd
  of the whole objective, fused SGD, resident tensors; in one process of one thread, and in two. It
  does the same work to the batch and ends with the same parameters, which a test holds it to.
- Flower's simulation and Apple's pfl (`benchmarks/peers/`): their own FedAvg, one process of one
  thread per core, resident tensors, no evaluation, the same cohort size, epochs, batches and SGD.
  pfl takes its batches in the same order in every epoch, and so is spared the shuffling. Each lives
  in a virtual environment of its own, with the same torch. Starting them is not timed."""
