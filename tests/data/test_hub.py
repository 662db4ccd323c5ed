"""Getting data from the hub: a module plays its library."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from isthmus.data.named.femnist import Femnist
from isthmus.data.named.mnist import Mnist
from isthmus.data.named.shakespeare import Shakespeare


class Rows(list[dict[str, Any]]):
    """A split of a data set as `datasets` gives it: a sequence of rows."""


@pytest.fixture
def the_hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Puts a module in the place of `datasets` that gives what the table holds."""
    holds: dict[str, Any] = {}
    module = ModuleType("datasets")
    module.load_dataset = holds.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setitem(sys.modules, "PIL", ModuleType("PIL"))
    return holds


def grey(level: int) -> Any:
    return np.full((28, 28), level, np.uint8)


def test_mnist_from_the_hub_is_read_as_the_original(
    isthmus: Isthmus, the_hub: dict[str, Any]
) -> None:
    the_hub["ylecun/mnist"] = {
        "train": Rows({"image": grey(i), "label": i % 10} for i in range(12)),
        "test": Rows({"image": grey(99), "label": 9} for _ in range(3)),
    }
    code, out, _ = isthmus("data", "get", "mnist", "--source", "hub")
    assert (code, out) == (0, "mnist is here: data/mnist/train-images-idx3-ubyte.gz\n")
    arrays = Mnist().load(Path("data"), seed=0)
    assert arrays.x[:, 0, 3, 4].tolist() == list(range(12))
    assert arrays.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert (arrays.test_x[:, 0, 27, 27].tolist(), arrays.test_y.tolist()) == ([99] * 3, [9] * 3)


def test_femnist_from_the_hub_keeps_its_writers(isthmus: Isthmus, the_hub: dict[str, Any]) -> None:
    writers = ["f2", "f1", "f2"]
    the_hub["flwrlabs/femnist"] = {
        "train": Rows(
            {"image": grey(i), "writer_id": writer, "hsf_id": 0, "character": 60 - i}
            for i, writer in enumerate(writers)
        )
    }
    assert isthmus("data", "get", "femnist", "--source", "hub").code == 0
    arrays = Femnist().load(Path("data"), seed=0)
    assert (arrays.names, arrays.y.tolist()) == (("f1", "f2"), [59, 60, 58])
    assert arrays.x[:, 0, 0, 0].tolist() == [1, 0, 2]


def test_shakespeare_from_the_hub_keeps_its_roles(
    isthmus: Isthmus, the_hub: dict[str, Any]
) -> None:
    text = "to be or not to be " * 60
    the_hub["flwrlabs/shakespeare"] = {
        "train": Rows(
            {"character_id": role, "x": text[i : i + 80], "y": text[i + 80]}
            for role in ("b", "a")
            for i in range(len(text) - 80)
        )
    }
    assert isthmus("data", "get", "shakespeare", "--source", "hub").code == 0
    arrays = Shakespeare(split="random").load(Path("data"), seed=0)
    assert (arrays.names, len(arrays.y)) == (("a", "b"), 2 * (len(text) - 80))


WRONG_HUBS: dict[str, Any] = {
    "nothing": {},
    "no such split": {"flwrlabs/femnist": {"test": Rows()}},
    "no such column": {"flwrlabs/femnist": {"train": Rows([{"image": grey(1)}])}},
    "another size": {
        "flwrlabs/femnist": {
            "train": Rows([{"image": np.zeros((3, 3)), "writer_id": "a", "character": 1}])
        }
    },
}


@pytest.mark.parametrize("name", WRONG_HUBS)
def test_a_wrong_hub_is_one_line(isthmus: Isthmus, the_hub: dict[str, Any], name: str) -> None:
    the_hub.update(WRONG_HUBS[name])
    said = isthmus("data", "get", "femnist", "--source", "hub")
    assert "flwrlabs/femnist on the hub cannot be read" in said.mistake
    assert not list(Path("data").rglob("*.*"))


@pytest.mark.parametrize("name", [".femnist.lock", "femnist/femnist.npz"])
def test_a_disk_that_is_not_written_to_has_a_line_of_its_own(
    isthmus: Isthmus, the_hub: dict[str, Any], name: str
) -> None:
    rows = Rows([{"image": grey(1), "writer_id": "a", "character": 1}])
    the_hub["flwrlabs/femnist"] = {"train": rows}
    Path("data", name).mkdir(parents=True)
    said = isthmus("data", "get", "femnist", "--source", "hub", "--force")
    assert "flwrlabs/femnist" not in said.mistake
    assert "cannot be" in said.mistake
