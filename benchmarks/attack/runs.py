"""Runs on disk: damaged files and cells, odd names, and places where nothing can be written."""

import csv
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

from benchmarks.attack.case import Case, Ending
from benchmarks.attack.samples import SMALL, Samples
from benchmarks.attack.words import NUMBERS, WORDS, damage_file, pick_value, swap_word

RUN = ["run", *SMALL, "--out", "out"]
FIGURES = ["rounds", "path", "landscape", "simplex", "reliability", "holdings", "gain"]
PLACES = [
    *("/dev/full", "file/x.svg", "/proc/x.svg", "a" * 300, "a" * 300 + ".svg", "", "/dev/null/x"),
    *(".", "é/ü.svg", "/", "run", "run/clients.csv/x.png", "b" * 300 + "/x.pdf", "loop/x.svg"),
]
NAMES = [
    *(b"\xff\xe9", b"\xed\xa0\x80", "é".encode("latin-1"), "日本".encode(), b"=1+1", b"@a", b"+1"),
    *(b"a b", b"a\tb", b"a\nb", b"\x1b[31m", b"'", b'"', b"<b>", b"&amp;", b"%s", b"{x}", b"a,b"),
    *(b"[red]", b"\\", b"a" * 255, "🜁".encode() * 60, b"#", b"~", b"*", b"$HOME", b"\x7f"),
]


def list_readers(run: str, rng: random.Random) -> list[list[str]]:
    """List commands that read a run and should be able to."""
    return [
        ["show", run],
        ["show", run, "--json", "--target", "0.5"],
        ["report", run],
        ["export", run, "--client", "0", "--out", "models"],
        ["export", run, "--all", "--out", "models"],
        ["resume", run],
        ["figure", run, rng.choice(FIGURES[:2]), "--out", rng.choice(["a.svg", "a.png", "a.pdf"])],
        ["landscape", run, "--points", "3"],
        ["run", f"{run}/experiment.toml", "--out", "again"],
    ]


def attack_runs(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damage a file of a run, then read the run."""
    run = samples.copy(rng.choice(["run", "floco"]), folder)
    path = rng.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    text = path.suffix in (".csv", ".json", ".toml")
    if text and rng.random() < 0.6:
        path.write_text(swap_word(path.read_text(), rng))
    elif rng.random() < 0.2:
        path.unlink()
        rng.choice([path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero")])()
    else:
        damage_file(path, rng)
    figure = ["figure", run.name, rng.choice(FIGURES), "--out", "a.svg"]
    return Case(rng.choice([*list_readers(run.name, rng), figure]))


def attack_cells(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Put hostile values into cells of a run's tables, settings or summary, then read the run."""
    run = samples.copy(rng.choice(["run", "floco"]), folder)
    path = rng.choice([*sorted(run.glob("*.csv")), run / "experiment.toml", run / "summary.json"])
    lines = path.read_text().split("\n")
    start = next((i for i, line in enumerate(lines) if not line.startswith("#")), 0)
    for _ in range(rng.choice([1, 1, 5])):
        row = rng.randrange(start, len(lines))
        if path.suffix == ".csv":
            cells = lines[row].split(",")
            cells[rng.randrange(len(cells))] = rng.choice(NUMBERS + WORDS)
            lines[row] = ",".join(cells)
        else:
            mark = "=" if path.suffix == ".toml" else ":"
            head, equals, _ = lines[row].partition(mark)
            lines[row] = f"{head}{equals} {rng.choice([*NUMBERS, pick_value(rng)])}"
    path.write_text("\n".join(lines))
    commands = [["show", run.name], ["report", run.name], ["show", run.name, "--json"]]
    figures = [["figure", run.name, name, "--out", "a.svg"] for name in FIGURES]
    return Case(rng.choice([*commands, *commands, *figures]))


def attack_names(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Call a run, or what is written of it, by any name that a disk can hold."""
    name = rng.choice(NAMES)
    if rng.random() < 0.3:
        letters = [n for n in range(1, 256) if n != ord("/")]
        name = bytes(rng.choices(letters, k=rng.choice([1, 3, 20]))).strip(b" .\t\n\r-") or b"a"
    run = os.fsdecode(name)
    samples.copy("run", folder).rename(folder / run)
    short = os.fsdecode(name[:240])
    commands = [
        *list_readers(run, rng),
        ["report", run, "--out", f"{short}.html"],
        ["figure", run, "rounds", "--out", f"{short}/a.svg" if short != run else f"{short}.svg"],
        ["export", run, "--client", "0", "--out", f"{short}.d"],
        ["run", *SMALL, "--out", f"{short}.d"],
    ]
    blank = not run.strip()
    env = {"PYTHONIOENCODING": rng.choice(["utf-8", "latin-1", "ascii"])}
    return Case(rng.choice(commands), env=env, codes=(0, 2) if blank else (0,))


def attack_clients(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Call clients and columns as nobody should, and look into the tables for formulas."""
    first, second = (rng.choice([w for w in WORDS if len(w) < 99]) for _ in range(2))
    head = rng.choice(["a", *(w for w in WORDS if w.strip() and len(w) < 99)])
    with (folder / "t.csv").open("w", newline="") as file:
        rows = [[i % 7, [first, second, "c"][i % 3], ["x", "y"][i // 3 % 2]] for i in range(60)]
        csv.writer(file).writerows([[head, "client", "label"], *rows])
    few = ["--rounds", "1", "--set", "clients_per_round=1", "--set", "hidden=4", "--out", "out"]

    def check(_: Ending) -> str:
        text = (folder / "out" / "federation.csv").read_text("utf-8")
        table = [line for line in text.split("\n") if not line.startswith("#")]
        found = [row[-1] for row in csv.reader(table) if row and row[-1][:1] in "=@\t"]
        return f"formulas {found}" if any(found) else ""

    return Case(["run", "--method", "fedavg", "--data", "t.csv", *few], check=check)


def attack_outputs(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Write to places that cannot be written to, and print in other encodings."""
    samples.copy("run", folder)
    (folder / "file").write_text("here")
    (folder / "loop").symlink_to("loop")
    out = rng.choice(PLACES)
    commands = [
        ["report", "run", "--out", out],
        ["figure", "run", "rounds", "--out", out],
        ["export", "run", "--client", "0", "--out", out],
        [*RUN[:-1], out],
        ["run", *SMALL, "--out", "日本"],
        ["list", "methods"],
        ["show", "run"],
        ["list", "data", "--json"],
        ["data", "list"],
        ["--version"],
        ["--help"],
        ["compare", *SMALL, "--methods", "local", "--seeds", "1", "--jobs", "1", "--out", out],
        ["run", *SMALL, "--track", "tensorboard", "--out", rng.choice([out, "out"])],
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


def attack_full_disks(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Let files grow to some size only, as on a full disk; what was there must stay whole."""
    run = samples.copy("run", folder)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    room = rng.choice([5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000])
    (folder / "report.html").write_text("the page before")
    commands = [
        ["report", "run"],
        ["figure", "run", "rounds", "--out", "a.png"],
        ["export", "run", "--all", "--out", "models"],
        ["landscape", "run", "--points", "8"],
        ["resume", "run", "--rounds", "2"],
        RUN,
        ["run", *SMALL, "--track", "tensorboard", "--out", "out"],
        ["compare", *SMALL, "--methods", "local", "--seeds", "1", "--jobs", "1", "--out", "c"],
    ]
    command = rng.choice(commands)

    def check(_: Ending) -> str:
        if command[0] in ("landscape", "resume"):
            return ""
        changed = [n for n, data in before.items() if (run / n).read_bytes() != data]
        return f"changed {changed}" if set(changed) - {"state.lock"} else ""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    return Case(command, prepare=limit, check=check, codes=(0, 1, 2))


RUN_SURFACES: dict[str, Callable[[random.Random, Path, Samples], Case]] = {
    "runs": attack_runs,
    "cells": attack_cells,
    "names": attack_names,
    "clients": attack_clients,
    "outputs": attack_outputs,
    "disks": attack_full_disks,
}
