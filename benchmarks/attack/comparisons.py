"""Comparisons that are damaged or asked for too much, and sizes that no machine has."""

import json
import random
from pathlib import Path
from typing import Any

from benchmarks.attack.case import Case
from benchmarks.attack.samples import SMALL, Samples
from benchmarks.attack.words import damage_file, pick_value, swap_word

PAIR = ["compare", *SMALL, "--methods", "local,fedavg", "--seeds", "1", "--jobs", "1"]
HUGE = [10**9, 10**12, 2**62, 2**63 - 1, 2**63, 10**20, 10**400]
OF_FILES = (
    "table",
    "folders",
    "imagenet",
    "shakespeare",
    "femnist",
)  # which are not here
SUMMARIES: list[Any] = [[], ["finished"], 1, "finished", None, {"rounds": "2"}, {"rounds": [2]}]
# What is repeated, or small however much is asked for, is no size.
PLAIN = ("seed", "split_seed", "supervisor_seed", "batch_size", "eval_every", "patience", "tau")


def attack_comparisons(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damage a file of a comparison, then go on with it."""
    place = samples.copy("comparison", folder)
    paths = sorted(path for path in place.rglob("*") if path.is_file())
    file, kind = place / "compare.toml", rng.random()
    path = rng.choice(paths)
    if kind < 0.15:
        summary = rng.choice([path for path in paths if path.name == "summary.json"])
        given = rng.choice(SUMMARIES)
        whole = json.loads(summary.read_text())
        summary.write_text(json.dumps({**whole, **given} if isinstance(given, dict) else given))
    elif kind < 0.2:
        path.write_text(rng.choice(["[" * 100_000, '{"a":' * 100_000, "a = " + "[" * 100_000]))
    elif kind < 0.3:
        file.write_bytes(rng.choice([b"", b"\xe9 = 1", b"seeds = 1", b"seeds = []", b"\0"]))
    elif kind < 0.5:
        file.write_text(swap_word(file.read_text(), rng))
    elif path.suffix in (".csv", ".json", ".toml") and kind < 0.8:
        path.write_text(swap_word(path.read_text(), rng))
    else:
        damage_file(path, rng)
    command = rng.choice([["resume", "comparison"], [*PAIR, "--out", "comparison"]])
    return Case(command, codes=(0, 1, 2))


def attack_amounts(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Ask for more runs, processes, rounds and values to try than anybody can mean."""
    many = rng.choice([10**6, 10**9, *HUGE])
    listed = ",".join(str(number) for number in range(rng.choice([10_001, 20_000])))
    tried = ",".join(f"0.{number}1" for number in range(200))
    tune = [f"{key}={tried}" for key in ("lr", "momentum", "lr_decay", "weight_decay")]
    options = [
        ["--seeds", str(many)],
        ["--seeds", listed],
        ["--seeds", f"{10**20},"],
        ["--jobs", str(many)],
        ["--rounds", str(10 * many)],
        [word for text in tune for word in ("--tune", text)],
        ["--seeds", pick_value(rng), "--rounds", str(10 * many)],
    ]
    single = [["--workers", str(many)], ["--rounds", str(10 * many)], ["--seed", str(10**20)]]
    if rng.random() < 0.3:
        return Case(["run", *SMALL, "--out", "out", *rng.choice(single)], refused=True)
    return Case([*PAIR, "--out", "out", *rng.choice(options)], refused=True)


def attack_sizes(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Set a size of the part that has it to what no machine holds."""
    from isthmus.experiment.registry import COMPONENTS, list_options
    from isthmus.experiment.settings import Experiment

    plain = [(key, "") for key in Experiment.model_fields if key not in (*COMPONENTS, *PLAIN)]
    named = [
        (f"{part}.{option}", f"{part}={name}")
        for part in COMPONENTS
        for name, options in list_options(part).items()
        for option, known in options.items()
        if isinstance(known.default, int) and option not in PLAIN and name not in OF_FILES
    ]
    key, owner = rng.choice([*plain, *named, *named, *named])
    value = rng.choice(HUGE)
    settings = [owner, f"{key}={value}"] if owner else [f"{key}={value}"]
    words = [word for text in settings for word in ("--set", text)]
    images = ["--data", "mnist", "--data-root", "data", *SMALL[2:4]] if rng.random() < 0.3 else []
    if images:
        samples.copy("data", folder)
    command = [*PAIR] if rng.random() < 0.1 and not key.startswith("method.") else ["run", *SMALL]
    # A comparison of which no run came to its end says so, and that is exit code 1.
    return Case([*command, *images, "--out", "out", *words], codes=(0, 1, 2))


def attack_joined(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Damage the table of those who joined a run, then read it."""
    samples.copy("arrays.npz", folder)
    samples.copy("newcomers.npz", folder)
    table = samples.copy("own", folder) / "newcomers.csv"
    if rng.random() < 0.6:
        table.write_text(swap_word(table.read_text(), rng))
    else:
        damage_file(table, rng)
    commands = [
        ["show", "own"],
        ["show", "own", "--json"],
        ["report", "own"],
        ["adapt", "own", "--data", "newcomers.npz", "--shots", "3"],
        ["resume", "own"],
    ]
    return Case(rng.choice(commands))
