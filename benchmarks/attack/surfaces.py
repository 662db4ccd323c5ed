"""Where hostile input enters. Each surface makes a case from random numbers, in a folder."""

import math
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attack.case import Case, Ending
from benchmarks.attack.comparisons import (
    attack_amounts,
    attack_comparisons,
    attack_joined,
    attack_sizes,
)
from benchmarks.attack.data import DATA_SURFACES
from benchmarks.attack.downloads import attack_downloads
from benchmarks.attack.runs import RUN, RUN_SURFACES
from benchmarks.attack.samples import SMALL, Samples
from benchmarks.attack.words import damage, pick_value, swap_word

Surface = Callable[[random.Random, Path, Samples], Case]


def attack_options(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Return options of a command values that they should not have."""
    import typer

    from isthmus.cli.app import build_app

    group: Any = typer.main.get_command(build_app(""))
    bases: dict[str, list[str]] = {
        "run": RUN,
        "compare": ["compare", *SMALL, "--methods", "fedavg", "--seeds", "1", "--jobs", "1"],
        "resume": ["resume", "run"],
        "show": ["show", "run"],
        "export": ["export", "run", "--client", "0", "--out", "models"],
        "adapt": ["adapt", "own", "--data", "newcomers.npz"],
        "report": ["report", "run"],
        "figure": ["figure", "run", "rounds"],
        "landscape": ["landscape", "run", "--points", "3"],
        "list": ["list", "methods"],
    }
    name = rng.choice(list(bases))
    for sample in ("run", "own", "newcomers.npz"):
        samples.copy(sample, folder)
    options = [
        option
        for option in group.commands[name].params
        if option.param_type_name == "option" and not getattr(option, "is_flag", False)
    ]
    arguments, empty = list(bases[name]), False
    for option in rng.sample(options, min(len(options), rng.choice([1, 1, 2]))):
        value = pick_value(rng)
        if value in ("/dev/zero", "/dev/null") and "out" in option.name:
            continue
        empty |= not value.strip()
        arguments += [option.opts[0], value]
    return Case([a.replace("\0", "") for a in arguments], refused=empty)


def attack_settings(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Set any setting to any value; what is accepted must be what was given."""
    from isthmus.experiment.registry import COMPONENTS, list_options
    from isthmus.experiment.settings import Experiment

    keys = [*Experiment.model_fields]
    for part in COMPONENTS:
        for name, options in list_options(part).items():
            keys += [f"{part}.{option}" for option in options] + [f"{part}={name}"]
    key = rng.choice(keys)
    settings = [key] if "=" in key else [f"{key}={pick_value(rng)}"]
    if rng.random() < 0.3:
        settings.append(f"{key.partition('=')[0]}={pick_value(rng)}")
    arguments = [part for text in settings for part in ("--set", text)]
    given = settings[-1].partition("=")[2]

    def check(_: Ending) -> str:
        text = (folder / "out" / "experiment.toml").read_text()
        value: Any = tomllib.loads(text)
        for word in key.partition("=")[0].split("."):
            value = value.get(word) if isinstance(value, dict) else None
        return "" if _means(given, value) else f"{key}: {given!r} became {value!r}"

    return Case([*RUN, *arguments], refused=given.strip() == "", check=check)


def _means(given: str, value: Any) -> bool:
    """Whether a value is what somebody may have meant who gave some text."""
    if isinstance(value, dict):
        value = value.get("name")
    try:
        read = tomllib.loads(f"value = {given}")["value"]
    except (ValueError, RecursionError):
        read = given.strip()
    if isinstance(read, bool) or isinstance(value, bool):
        return read is value
    if isinstance(value, int | float) and isinstance(read, int | float):
        return value == read or (math.isnan(value) and math.isnan(read))
    if isinstance(value, list):
        return bool(read == value or [read] == value)
    return str(read) == str(value)


def attack_experiment(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Run a damaged experiment file."""
    text = (samples.root / "run" / "experiment.toml").read_text()
    path = folder / "e.toml"
    kind = rng.random()
    if kind < 0.5:
        path.write_text(swap_word(text, rng), errors="surrogateescape")
    elif kind < 0.7:
        path.write_bytes(damage(text.encode(), rng))
    elif kind < 0.85:
        path.write_text(f"{pick_value(rng) or 'a'} = {pick_value(rng)}\n{text}")
    else:
        path.write_text(f"{text}\n[{rng.choice(['method', 'data', 'self', 'x.y'])}]\nself = 1\n")
    return Case(["run", "e.toml", "--rounds", "1", "--out", "out"])


SURFACES: dict[str, Surface] = {
    "options": attack_options,
    "settings": attack_settings,
    "experiments": attack_experiment,
    "comparisons": attack_comparisons,
    "amounts": attack_amounts,
    "sizes": attack_sizes,
    **RUN_SURFACES,
    "joined": attack_joined,
    **DATA_SURFACES,
    "downloads": attack_downloads,
}
