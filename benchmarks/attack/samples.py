"""Sound runs, comparisons and data, made once; every attempt damages a copy."""

import csv
import gzip
import json
import random
import shutil
import struct
from pathlib import Path

import numpy as np

SMALL = [
    *("--data", "synthetic", "--rounds", "2", "--set", "samples=60", "--set", "clients=4"),
    *("--set", "clients_per_round=2", "--set", "epochs=1", "--set", "hidden=4"),
    *("--set", "eval_every=1"),
]
PAIR = [*SMALL, "--methods", "local,fedavg", "--seeds", "1", "--jobs", "1"]
OWN = [
    *("--data", "arrays.npz", "--rounds", "1", "--set", "clients_per_round=1"),
    *("--set", "hidden=4"),
]
IDX = {
    "train-images-idx3-ubyte": (60, 4, 4),
    "train-labels-idx1-ubyte": (60,),
    "t10k-images-idx3-ubyte": (20, 4, 4),
    "t10k-labels-idx1-ubyte": (20,),
}


class Samples:
    """A folder of sound things."""

    def __init__(self, root: Path):
        self.root = root

    def copy(self, name: str, folder: Path) -> Path:
        """Copies one of them into a folder."""
        source, target = self.root / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy(source, target)
        return target


def write_table(path: Path, rows: int = 40, seed: int = 0) -> None:
    """Writes a small table of two clients and two classes."""
    rng = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "height", "colour", "town", "label"])
        for row in range(rows):
            facts = [rng.randrange(20, 80), round(rng.gauss(170, 9), 1)]
            words = [rng.choice("rgb"), ["Oslo", "Bergen"][row % 2], ["yes", "no"][row // 2 % 2]]
            writer.writerow([*facts, *words])


def write_mnist(folder: Path, seed: int = 0) -> None:
    """Writes the four files of MNIST, with few and small images."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for name, shape in IDX.items():
        image = len(shape) == 3
        values = rng.integers(0, 256, shape) if image else np.arange(shape[0]) % 10
        head = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def write_arrays(path: Path, seed: int = 0) -> None:
    """Writes arrays of inputs, labels and owners."""
    rng = np.random.default_rng(seed)
    np.savez(
        path,
        x=rng.normal(size=(40, 5)).astype(np.float32),
        y=np.arange(40) // 2 % 2,
        client=np.arange(40) % 2,
    )


def write_leaf(folder: Path) -> None:
    """Writes a few writers of LEAF's Shakespeare."""
    for part in ("train", "test"):
        place = folder / "data" / part
        place.mkdir(parents=True)
        users = {f"U{i}": {"x": ["a" * 80] * 6, "y": list("abcabc")} for i in range(3)}
        data = {"users": list(users), "num_samples": [6] * 3, "user_data": users}
        (place / "all.json").write_text(json.dumps(data))


def write_images(folder: Path, seed: int = 0) -> None:
    """Writes folders of small images, one of each class."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for i in range(8):
            image = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
            image.save(folder / label / f"{i}.png")


def write_samples(root: Path) -> Samples:
    """Makes all of them below a folder."""
    from benchmarks.attack.case import Case, attempt

    write_table(root / "table.csv")
    write_mnist(root / "data" / "mnist")
    write_arrays(root / "arrays.npz")
    write_arrays(root / "newcomers.npz", seed=1)
    write_leaf(root / "data" / "shakespeare")
    write_images(root / "images")
    commands = {
        "run": ["run", *SMALL, "--out", "run"],
        "own": ["run", "--method", "fedavg", *OWN, "--out", "own"],
        "comparison": ["compare", *PAIR, "--out", "comparison"],
    }
    for name, arguments in commands.items():
        end = attempt(Case(arguments), root)
        if end.code:
            raise RuntimeError(f"{name}: {end.error}")
    return Samples(root)
