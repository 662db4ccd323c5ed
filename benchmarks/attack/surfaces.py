"""Where hostile input enters. Each surface makes a case from random numbers, in a folder."""

import math
import os
import random
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.case import Case, Ending
from benchmarks.attack.samples import SMALL, Samples
from benchmarks.attack.words import NUMBERS, damage, damage_file, pick_value, swap_word

Surface = Callable[[random.Random, Path, Samples], Case]
RUN = ["run", *SMALL, "--out", "out"]
READERS = (
    ["show", "run"],
    ["show", "run", "--json"],
    ["report", "run"],
    ["export", "run"],
    ["resume", "run"],
    ["resume", "run", "--rounds", "3"],
    ["figure", "run", "rounds"],
    ["figure", "run", "path", "--out", "a.png"],
    ["landscape", "run", "--points", "3"],
    ["run", "run/experiment.toml", "--out", "again"],
)


def attack_options(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Gives options of a command values that they should not have."""
    import typer

    from isthmus.cli.app import app

    group: Any = typer.main.get_command(app)
    bases: dict[str, list[str]] = {
        "run": RUN,
        "compare": ["compare", *SMALL, "--methods", "fedavg", "--seeds", "1", "--jobs", "1"],
        "resume": ["resume", "run"],
        "show": ["show", "run"],
        "export": ["export", "run"],
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
    """Sets any setting to any value; what is accepted must be what was given."""
    from isthmus.config.experiment import Experiment
    from isthmus.config.registry import PARTS, list_options

    keys = [*Experiment.model_fields]
    for part in PARTS:
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
    """Runs a damaged experiment file."""
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


def attack_tables(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Puts hostile cells, lines and bytes into a table."""
    path = samples.copy("table.csv", folder)
    text = path.read_text()
    lines = text.split("\n")
    kind, refused = rng.choice(["cell", "label", "bytes", "word", "columns", "long"]), False
    if kind == "cell":
        row = rng.randrange(len(lines) - 1)
        cells = lines[row].split(",")
        cells[rng.randrange(len(cells))] = pick_value(rng)
        lines[row] = ",".join(cells)
        path.write_text("\n".join(lines))
    elif kind == "label":
        row, column = rng.randrange(1, len(lines) - 1), rng.choice([3, 4])
        cells = lines[row].split(",")
        cells[column] = rng.choice(["", " ", "nan", "NaN", "NA", "null"])
        lines[row], refused = ",".join(cells), True
        path.write_text("\n".join(lines))
    elif kind == "bytes":
        damage_file(path, rng)
    elif kind == "word":
        path.write_text(swap_word(text, rng))
    elif kind == "columns":
        wide = [f"{line},{','.join(['1'] * 20000)}" for line in lines if line]
        path.write_text("\n".join(wide))
    else:
        path.write_text(text + "x" * rng.choice([10, 200_000]) + ",1,r,Oslo,yes\n")
    settings = [["--set", "client=town"], [], ["--set", "delimiter=;"], ["--set", "label=age"]]
    chosen = settings[0] if refused else rng.choice(settings)
    return Case(
        ["data", "show", "--data", "table.csv", "--set", "label=label", *chosen], refused=refused
    )


def attack_arrays(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Gives arrays of other kinds, shapes and values than expected."""
    rows = rng.choice([0, 1, 2, 40])
    kinds = [
        "f8",
        "f4",
        "f2",
        "g",
        "i8",
        "u8",
        "i1",
        "U3",
        "S3",
        "M8[s]",
        "m8[s]",
        "?",
        "c16",
        "V4",
    ]

    def make(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        kind = rng.choice(kinds)
        size = math.prod(shape)
        special = rng.choice([[0, 1], [-1, 1], [0, 2**40], [0, 1, 2]])
        raw = np.array(rng.choices(special, k=size), "i8").reshape(shape)
        with np.errstate(all="ignore"):
            array = raw.astype("S4") if kind == "V4" else raw.astype(kind)
        if kind in ("f8", "f4", "g") and rng.random() < 0.5 and size:
            array.flat[0] = rng.choice([np.nan, np.inf, 1e38])
        return array.view("V4") if kind == "V4" else array

    def shape(first: int, more: Sequence[int]) -> tuple[int, ...]:
        return (first, *more)

    arrays = {
        "x": make(shape(rows, rng.choice([(5,), (), (2, 3), (1, 4, 4), (0,), (1,)]))),
        "y": make(shape(rng.choice([rows, rows, rows + 1]), rng.choice([(), (), (), (1,)]))),
        "client": make(shape(rows, rng.choice([(), (), (1,)]))),
    }
    dropped = rng.choice(["", "", "", "x", "y", "client"])
    path = folder / "a.npz"
    np.savez(path, **{key: array for key, array in arrays.items() if key != dropped})
    if rng.random() < 0.3:
        damage_file(path, rng)
    command = rng.choice(
        [
            ["data", "show", "--data", "a.npz"],
            ["run", "--data", "a.npz", "--rounds", "1", "--set", "clients_per_round=1"],
            ["adapt", "own", "--data", "a.npz"],
        ]
    )
    if command[0] == "adapt":
        samples.copy("own", folder)
        samples.copy("arrays.npz", folder)
    return Case(command)


def attack_sources(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damages the files of data sets."""
    root = samples.copy("data", folder)
    name = rng.choice(["mnist", "shakespeare", "images"])
    place = samples.copy("images", folder) if name == "images" else root / name
    paths = sorted(path for path in place.rglob("*") if path.is_file())
    path = rng.choice(paths)
    kind = rng.random()
    if kind < 0.6:
        damage_file(path, rng)
    elif kind < 0.7:
        path.unlink()
        os.mkfifo(path)
    elif kind < 0.8:
        path.unlink()
        path.symlink_to(rng.choice(["/dev/zero", "/nowhere", path, "/proc/self/mem"]))
    elif path.suffix == ".json":
        path.write_text(swap_word(path.read_text(), rng))
    else:
        path.unlink()
        path.mkdir()
    return Case(["data", "show", "--data", name, "--data-root", "data"])


def attack_cache(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damages arrays in the cache: they are made again, or the data are the same."""
    samples.copy("data", folder)
    show = ["data", "show", "--data", "mnist", "--data-root", "data"]
    from benchmarks.attack.case import attempt

    sound = attempt(Case(show), folder).out
    paths = sorted((folder / "data").rglob("*.npy"))
    if paths:
        path = rng.choice(paths)
        times = path.stat()
        damage_file(path, rng)
        if rng.random() < 0.5:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return Case(show, check=lambda end: "" if end.out == sound else "other data than before")


def attack_runs(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damages a file of a run, then reads the run."""
    run = samples.copy("run", folder)
    path = rng.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    text = path.suffix in (".csv", ".json", ".toml")
    if text and rng.random() < 0.6:
        path.write_text(swap_word(path.read_text(), rng))
    elif rng.random() < 0.1:
        path.unlink()
        path.mkdir()
    else:
        damage_file(path, rng)
    return Case(list(rng.choice(READERS)), codes=(0, 1, 2))


def attack_comparisons(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damages a file of a comparison, then goes on with it."""
    place = samples.copy("comparison", folder)
    path = rng.choice(sorted(path for path in place.rglob("*") if path.is_file()))
    if path.suffix in (".csv", ".json", ".toml") and rng.random() < 0.6:
        path.write_text(swap_word(path.read_text(), rng))
    else:
        damage_file(path, rng)
    same = ["compare", *SMALL, "--methods", "local,fedavg", "--seeds", "1", "--jobs", "1"]
    command = rng.choice([["resume", "comparison"], [*same, "--out", "comparison"]])
    return Case(command, codes=(0, 1, 2))


def attack_outputs(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Writes to places that cannot be written to, and prints in other encodings."""
    samples.copy("run", folder)
    (folder / "file").write_text("here")
    places = ["/dev/full", "file/x", "/proc/x", "a" * 300, "", "/dev/null/x", ".", "é/ü.svg", "/"]
    out = rng.choice(places)
    commands = [
        ["report", "run", "--out", out],
        ["figure", "run", "rounds", "--out", out],
        ["export", "run", "--out", out],
        [*RUN[:-1], out],
        ["run", *SMALL, "--out", "日本"],
        ["list", "methods"],
        ["show", "run"],
        ["list", "data", "--json"],
        ["data", "list"],
        ["--version"],
        ["--help"],
        ["compare", *SMALL, "--methods", "local", "--seeds", "1", "--jobs", "1", "--out", out],
    ]
    encoding = rng.choice(["utf-8", "latin-1", "ascii"])
    full = rng.random() < 0.3
    return Case(
        rng.choice(commands),
        env={"PYTHONIOENCODING": encoding},
        stdout="/dev/full" if full else "",
        refused=full,
        codes=(0, 1, 2),
    )


def attack_newcomers(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Lets newcomers join with hostile numbers of shots and values."""
    samples.copy("own", folder)
    samples.copy("arrays.npz", folder)
    path = samples.copy("newcomers.npz", folder)
    shots = rng.choice([*NUMBERS, "5"])
    if rng.random() < 0.5:
        with np.load(path) as there:
            arrays = dict(there)
        arrays["x"] = arrays["x"].astype("f8") * rng.choice([1e300, 1e38, 1e10, np.nan, 0])
        np.savez(path, **arrays)
    wrong = not (shots.isdecimal() and int(shots[:9]) > 0 and shots.isascii())
    fine = ("1.0", "1_000", " 1 ", "+1", "٣", "１２")
    return Case(
        ["adapt", "own", "--data", "newcomers.npz", "--shots", shots],
        refused=wrong and shots not in fine,
    )


SURFACES: dict[str, Surface] = {
    "options": attack_options,
    "settings": attack_settings,
    "experiments": attack_experiment,
    "tables": attack_tables,
    "arrays": attack_arrays,
    "sources": attack_sources,
    "cache": attack_cache,
    "runs": attack_runs,
    "comparisons": attack_comparisons,
    "outputs": attack_outputs,
    "newcomers": attack_newcomers,
}
