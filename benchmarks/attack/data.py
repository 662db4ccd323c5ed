"""Hostile data: tables, arrays, files of data sets, the cache, newcomers."""

import gzip
import math
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchmarks.attack.case import Case, Ending, attempt
from benchmarks.attack.samples import DIVIDE, FOLDERS, Samples
from benchmarks.attack.words import NUMBERS, damage, damage_file, pick_value, swap_word

KINDS = (
    *("f8", "f4", "f2", "g", ">f4", "i8", "u8", "u2", ">i4", "i1", "U3", "S3", "M8[s]", "m8[s]"),
    *("?", "c16", "V4", "O"),
)
PLAIN = ("f8", "f4", "f2", "i8", "u8", "u2", "i1", "b1")  # what safetensors has names for
PLACES = ("/dev/zero", "/dev/null", "/proc", "/proc/self/fd", "/nowhere", "/", "a" * 300, "..")


def attack_tables(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Put hostile cells, lines and bytes into a table."""
    path = samples.copy("table.csv", folder)
    lines = path.read_text().split("\n")
    kind = rng.choice(["cell", "label", "bytes", "word", "columns", "long", "one", "split", "file"])
    refused = kind in ("label", "one", "split", "file")
    if kind in ("cell", "label"):
        row = rng.randrange(1 if refused else 0, len(lines) - 1)
        cells = lines[row].split(",")
        missing = rng.choice(["", " ", "nan", "NaN", "NA", "null", "N/A"])
        cells[rng.choice([3, 4]) if refused else rng.randrange(5)] = (
            missing if refused else pick_value(rng)
        )
        lines[row] = ",".join(cells)
    elif kind == "word":
        lines = swap_word("\n".join(lines), rng).split("\n")
    elif kind == "columns":
        lines = [f"{line},{','.join(['1'] * 20000)}" for line in lines if line]
    elif kind == "long":
        lines[-1] = "x" * rng.choice([10, 200_000]) + ",1,r,Oslo,yes"
    elif kind == "one":
        lines = [line.replace("yes", "no") for line in lines]
    elif kind == "split":
        part = rng.choice(["test", "validation", "2", "1"])
        lines = [f"{line},{part if row else 'part'}" for row, line in enumerate(lines) if line]
    path.write_text("\n".join(lines))
    if kind == "bytes":
        damage_file(path, rng)
    elif kind == "file":
        replace_file(path, rng)
    settings = [["--set", "client=town"], [], ["--set", "delimiter=;"], ["--set", "label=age"]]
    chosen = settings[0] if refused else rng.choice(settings)
    split = ["--set", "split=part"] if kind == "split" else []
    show = ["data", "show", "--data", "table.csv", "--set", "label=label"]
    return Case([*show, *chosen, *split], refused=refused)


def attack_parquet(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Write a table of any columns in Parquet, and damage it."""
    import pyarrow as pa
    from pyarrow import parquet

    cells: list[list[Any]] = [
        [1.5, None],
        [1, 2**62],
        ["a", pick_value(rng)],
        [b"a", b"\xff"],
        [[1], [2]],
        [{"a": 1}, None],
        [math.nan, math.inf],
        [True, False],
    ]
    rows = rng.choice([0, 2, 40])
    columns = {
        name: pa.array((rng.choice(cells) * 20)[:rows])
        for name in ("age", "town", "label", pick_value(rng) or "more")
    }
    sound = {"label": ["yes", "no"], "town": ["Oslo", "Bergen"], "age": [3, 4]}
    columns |= {
        name: pa.array((values * 20)[:rows]) for name, values in sound.items() if rng.random() < 0.6
    }
    path = folder / "table.parquet"
    parquet.write_table(pa.table(columns), path)
    if rng.random() < 0.4:
        damage_file(path, rng)
    show = ["data", "show", "--data", path.name, "--set", "client=town"]
    return Case([*show, "--set", "drop=more"] if rng.random() < 0.3 else show)


def attack_own_settings(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Set options of a source of own data, or of a data set's files, to any values."""
    from isthmus.experiment.registry import list_options

    options = list_options("data")
    paths = {"table": "table.csv", "files": "arrays.npz", "folders": "images"}
    name = rng.choice([*paths, *FOLDERS, "imagenet"])
    for sample in (paths.get(name, ""), "data"):
        if sample:
            samples.copy(sample, folder)
    arguments = ["--data", paths.get(name, name), "--data-root", "data", *DIVIDE.get(name, [])]
    if name == "table":
        arguments += ["--set", "client=town"]
    for key in rng.choices([*options[name]] or ["scale"], k=rng.choice([1, 1, 2])):
        values = ["town", "age", "label,age", "images", pick_value(rng), pick_value(rng)]
        arguments += ["--set", f"data.{key}={rng.choice(values)}".replace("\0", "")]
    return Case(["data", "show", *arguments])


def replace_file(path: Path, rng: random.Random) -> None:
    """Put something in the place of a file that is none."""
    path.unlink()
    kind = rng.choice(["pipe", "link", "folder", "socket"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(rng.choice(["/dev/zero", "/dev/random", "/nowhere", path, "/proc", "/"]))
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as there:
            short = path.parent / "s"
            there.bind(os.path.relpath(short))
            short.rename(path)


def make_array(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Make an array of any kind, with some numbers that are none."""
    kind = rng.choice(KINDS)
    size = math.prod(shape)
    special = rng.choice([[0, 1], [-1, 1], [0, 2**40], [0, 1, 2], [0]])
    raw = np.array(rng.choices(special, k=size), "i8").reshape(shape)
    with np.errstate(all="ignore"):
        array = raw.astype("S4") if kind == "V4" else raw.astype(kind)
    if kind in ("f8", "f4", "g", ">f4") and rng.random() < 0.5 and size:
        with np.errstate(all="ignore"):
            array.flat[0] = rng.choice([np.nan, np.inf, 1e38, 1e300])
    return array.view("V4") if kind == "V4" else array


def attack_arrays(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Return arrays of other kinds, shapes and values than expected."""
    rows = rng.choice([0, 1, 2, 40, 40, 40])
    wide = rng.choice([(5,), (5,), (), (2, 3), (1, 4, 4), (0,), (3, 0), (1,)])
    arrays = {
        "x": make_array(rng, (rows, *wide)),
        "y": make_array(
            rng, (rng.choice([rows, rows, rows, rows + 1]), *rng.choice([(), (), (1,)]))
        ),
        "client": make_array(rng, (rows, *rng.choice([(), (), (1,)]))),
        "split": make_array(rng, (rows,)),
    }
    sound = {"x": np.eye(rows, 5), "y": np.arange(rows) % 2, "client": np.arange(rows) // 20}
    arrays |= {key: sound[key] for key in sound if rng.random() < 0.4}
    dropped = rng.choice(["", "x", "y", "client"]), rng.choice(["", "split", "split"])
    arrays = {key: array for key, array in arrays.items() if key not in dropped}
    path = folder / rng.choice(["a.npz", "a.npz", "a.safetensors"])
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        numbers = {key: array for key, array in arrays.items() if array.dtype.str[1:] in PLAIN}
        save_file({key: np.ascontiguousarray(array) for key, array in numbers.items()}, path)
    if rng.random() < 0.2:
        damage_file(path, rng)
    elif rng.random() < 0.05:
        replace_file(path, rng)
    name = str(path) if rng.random() < 0.95 else rng.choice(PLACES)
    scale = rng.choice([[], [], ["--set", f"scale={rng.choice(NUMBERS)}"]])
    commands = [
        ["data", "show", "--data", name, *scale],
        ["run", "--data", name, "--rounds", "1", "--set", "clients_per_round=1", *scale],
        ["adapt", "own", "--data", name],
    ]
    command = rng.choice(commands)
    if command[0] == "adapt":
        samples.copy("own", folder)
        samples.copy("arrays.npz", folder)
    return Case(command, refused=name in PLACES)


def attack_sources(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damage the files of data sets."""
    samples.copy("data", folder)
    name = rng.choice([*FOLDERS, "images"])
    place = samples.copy("images", folder) if name == "images" else folder / "data" / FOLDERS[name]
    path = rng.choice(sorted(path for path in place.rglob("*") if path.is_file()))
    kind, text = rng.random(), path.suffix in (".json", ".txt")
    if kind < 0.25:
        replace_file(path, rng)
    elif kind < 0.35:
        longest = 255 - len(path.suffix)
        path.rename(path.with_name(rng.choice(["é" * 60, "\n", "a" * longest, " "]) + path.suffix))
    elif path.suffix == ".gz" and kind < 0.9:  # inside, where no checksum tells
        data = bytearray(gzip.decompress(path.read_bytes()))
        at = rng.choice([4, 8, 12])
        data[at : at + 4] = rng.choice([0, 1, 7, 60, 2**31, 2**32 - 1]).to_bytes(4, "big")
        path.write_bytes(gzip.compress(damage(data, rng) if rng.random() < 0.5 else data))
    elif path.suffix == ".npz" and kind < 0.8:
        with np.load(path) as there:
            arrays = dict(there)
        key = rng.choice(sorted(arrays))
        arrays[key] = make_array(rng, arrays[key].shape)
        np.savez(path, **arrays)
    elif text and kind < 0.8:
        path.write_text(swap_word(path.read_text(), rng), errors="surrogateescape")
    elif text and kind < 0.9:
        path.write_text(path.read_text().replace("_", "\0", rng.choice([1, 2, 9])))
    else:
        damage_file(path, rng)
    return Case(["data", "show", "--data", name, "--data-root", "data", *DIVIDE.get(name, [])])


def attack_cache(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damage arrays in the cache: they are made again, or the data are the same."""
    samples.copy("data", folder)
    name = rng.choice(["mnist", "cifar10", "tinyimagenet"])
    show = ["data", "show", "--data", name, "--data-root", "data", *DIVIDE[name]]
    sound = attempt(Case(show), folder).out
    path = rng.choice(sorted((folder / "data").rglob("*.npy")))
    times = path.stat()
    kind = rng.random()
    if kind < 0.1:
        replace_file(path, rng)
    elif kind < 0.2:
        path.with_name(f"{path.name}.0123abcd.part").write_bytes(b"half")
    else:
        damage_file(path, rng)
        if rng.random() < 0.5:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def check(end: Ending) -> str:
        if not sound or end.out != sound:
            return "other data than before"
        return "drafts stay" if [*(folder / "data").rglob("*.part")] else ""

    return Case(show, check=check, codes=(0,))


def attack_newcomers(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Let newcomers join with hostile numbers of shots and values."""
    samples.copy("own", folder)
    samples.copy("arrays.npz", folder)
    path = samples.copy("newcomers.npz", folder)
    shots = rng.choice([*NUMBERS, "5", "5"])
    factor = rng.choice([1, 1, 1e300, 1e39, 1e38, 1e10, np.nan, 0])
    with np.load(path) as there:
        arrays = dict(there)
    arrays["x"] = arrays["x"].astype("f8") * factor
    np.savez(path, **arrays)
    wrong = not (shots.isdecimal() and int(shots[:9]) > 0 and shots.isascii())
    fine = ("1.0", "1_000", " 1 ", "+1", "٣", "１２")
    return Case(
        ["adapt", "own", "--data", "newcomers.npz", "--shots", shots],
        refused=(wrong and shots not in fine) or not factor < 1e39,
    )


DATA_SURFACES: dict[str, Callable[[random.Random, Path, Samples], Case]] = {
    "tables": attack_tables,
    "parquet": attack_parquet,
    "own-settings": attack_own_settings,
    "arrays": attack_arrays,
    "sources": attack_sources,
    "cache": attack_cache,
    "newcomers": attack_newcomers,
}
