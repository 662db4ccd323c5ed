"""Sound runs, comparisons and data, made once; every attempt damages a copy."""

import csv
import gzip
import json
import pickle
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
FOLDERS = {
    "mnist": "mnist",
    "shakespeare": "shakespeare",
    "cifar10": "cifar-10-batches-py",
    "femnist": "femnist",
    "tinyimagenet": "tiny-imagenet-200",
}
DIVIDE = {  # few examples need few clients
    name: ["--set", "partition=iid", "--set", "clients=2", "--set", "clients_per_round=1"]
    for name in ("mnist", "cifar10", "femnist", "tinyimagenet")
} | {"shakespeare": ["--set", "split=random"]}
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
        """Copy one of them into a folder."""
        source, target = self.root / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy(source, target)
        return target


def write_table(path: Path, rows: int = 40, seed: int = 0) -> None:
    """Write a small table of two clients and two classes."""
    rng = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "height", "colour", "town", "label"])
        for row in range(rows):
            facts = [rng.randrange(20, 80), round(rng.gauss(170, 9), 1)]
            words = [rng.choice("rgb"), ["Oslo", "Bergen"][row % 2], ["yes", "no"][row // 2 % 2]]
            writer.writerow([*facts, *words])


def write_mnist(folder: Path, seed: int = 0) -> None:
    """Write the four files of MNIST, with few and small images."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for name, shape in IDX.items():
        image = len(shape) == 3
        values = rng.integers(0, 256, shape) if image else np.arange(shape[0]) % 10
        head = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def write_arrays(path: Path, seed: int = 0) -> None:
    """Write arrays of inputs, labels and owners."""
    rng = np.random.default_rng(seed)
    np.savez(
        path,
        x=rng.normal(size=(40, 5)).astype(np.float32),
        y=np.arange(40) // 2 % 2,
        client=np.arange(40) % 2,
    )


def write_leaf(folder: Path) -> None:
    """Write a few writers of LEAF's Shakespeare."""
    for part in ("train", "test"):
        place = folder / "data" / part
        place.mkdir(parents=True)
        users = {f"U{i}": {"x": ["a" * 80] * 6, "y": list("abcabc")} for i in range(3)}
        data = {"users": list(users), "num_samples": [6] * 3, "user_data": users}
        (place / "all.json").write_text(json.dumps(data))


def write_cifar(folder: Path, seed: int = 0) -> None:
    """Write the files of CIFAR-10, with few images."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        data = rng.integers(0, 256, (6, 3072), dtype=np.uint8)
        table = {"data": data, "labels": [i % 10 for i in range(6)]}
        (folder / name).write_bytes(pickle.dumps(table, 4))
    names = {"label_names": [f"class {i}" for i in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, 4))


def write_femnist(folder: Path, seed: int = 0) -> None:
    """Write a few writers' images in the one file that the hub's become."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    x = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    owner, names = np.arange(40) % 2, np.array(["f1", "f2"])
    np.savez(folder / "femnist.npz", x=x, y=np.arange(40) % 62, owner=owner, names=names)


def write_tree(tree: Path, seed: int = 0) -> None:
    """Write a TinyImageNet of two classes."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    names, lines = ("n00000001", "n00000002"), []

    def save(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)

    for label in names:
        for i in range(6):
            save(tree / "train" / label / "images" / f"{label}_{i}.JPEG")
        for i in range(2):
            save(tree / "val" / "images" / f"val_{label}_{i}.JPEG")
            lines.append(f"val_{label}_{i}.JPEG\t{label}\t0\t0\t63\t63")
    (tree / "val" / "val_annotations.txt").write_text("\n".join(lines))
    (tree / "wnids.txt").write_text("\n".join(names))
    (tree / "words.txt").write_text("".join(f"{label}\ta {label}\n" for label in names))


def write_images(folder: Path, seed: int = 0) -> None:
    """Write folders of small images, one of each client and class."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for client, label in (("Oslo", "cat"), ("Oslo", "dog"), ("Bergen", "cat"), ("Bergen", "dog")):
        (folder / client / label).mkdir(parents=True)
        for i in range(4):
            image = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
            image.save(folder / client / label / f"{i}.png")


def write_samples(root: Path) -> Samples:
    """Make all of them below a folder."""
    from benchmarks.attack.case import Case, attempt

    write_table(root / "table.csv")
    write_mnist(root / "data" / "mnist")
    write_arrays(root / "arrays.npz")
    write_arrays(root / "newcomers.npz", seed=1)
    write_leaf(root / "data" / "shakespeare")
    write_cifar(root / "data" / FOLDERS["cifar10"])
    write_femnist(root / "data" / "femnist")
    write_tree(root / "data" / FOLDERS["tinyimagenet"])
    write_images(root / "images")
    commands = {
        "run": ["run", *SMALL, "--out", "run"],
        "plane": ["landscape", "run", "--points", "3"],
        "floco": ["run", "--method", "floco", *SMALL, "--set", "tau=0", "--out", "floco"],
        "simplex": ["landscape", "floco", "--points", "3"],
        "own": ["run", "--method", "fedavg", *OWN, "--out", "own"],
        "joined": ["adapt", "own", "--data", "newcomers.npz", "--shots", "5"],
        "comparison": ["compare", *PAIR, "--out", "comparison"],
    }
    for name, arguments in commands.items():
        end = attempt(Case(arguments), root)
        if end.code:
            raise RuntimeError(f"{name}: {end.error}")
    return Samples(root)
