"""Getting data from the hub: a module plays huggingface_hub, and writes Parquet files."""

import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import IsthmusError
from isthmus.data.named.femnist import Femnist
from isthmus.data.named.hub import Hub
from isthmus.data.named.mnist import Mnist
from isthmus.data.named.shakespeare import Shakespeare

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("PIL")

Splits = dict[str, list[dict[str, Any]]]


def image(level: int, size: tuple[int, int] = (28, 28)) -> dict[str, Any]:
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", size, level).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def save(folder: Path, splits: Splits, features: dict[str, Any], config: str = "default") -> None:
    """Write a data set as the hub keeps it, in two files for each split."""
    import pyarrow

    for split, rows in splits.items():
        (folder / config / split).mkdir(parents=True)
        for number, half in enumerate((rows[:1], rows[1:])):
            described = json.dumps({"info": {"features": features}})
            table = pyarrow.Table.from_pylist(half or rows).slice(0, len(half))
            table = table.replace_schema_metadata({"huggingface": described})
            parquet.write_table(table, folder / config / split / f"{number:04}.parquet")


@pytest.fixture
def the_hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Splits]:
    """Put a module in the place of huggingface_hub that has what the table holds."""
    holds: dict[str, Splits] = {}

    def snapshot_download(repo_id: str, **options: Any) -> None:
        assert options["repo_type"] == "dataset"
        assert options["revision"] == "refs/convert/parquet"
        save(Path(options["local_dir"]), holds[repo_id], {})

    module = ModuleType("huggingface_hub")
    module.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return holds


def test_mnist_from_the_hub_is_read_as_the_original(
    isthmus: Isthmus, the_hub: dict[str, Splits]
) -> None:
    the_hub["ylecun/mnist"] = {
        "train": [{"image": image(i), "label": i % 10} for i in range(12)],
        "test": [{"image": image(99), "label": 9} for _ in range(3)],
    }
    code, out, _ = isthmus("data", "get", "mnist", "--source", "hub")
    assert (code, out) == (0, "mnist is here: data/mnist/train-images-idx3-ubyte.gz\n")
    arrays = Mnist().load(Path("data"), seed=0)
    assert arrays.x[:, 0, 3, 4].tolist() == list(range(12))
    assert arrays.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert (arrays.test_x[:, 0, 27, 27].tolist(), arrays.test_y.tolist()) == ([99] * 3, [9] * 3)
    assert not list(Path("data").rglob("*.parquet"))


def test_femnist_from_the_hub_keeps_its_writers(
    isthmus: Isthmus, the_hub: dict[str, Splits]
) -> None:
    the_hub["flwrlabs/femnist"] = {
        "train": [
            {"image": image(i), "writer_id": writer, "hsf_id": 0, "character": 60 - i}
            for i, writer in enumerate(["f2", "f1", "f2"])
        ]
    }
    assert isthmus("data", "get", "femnist", "--source", "hub").code == 0
    arrays = Femnist().load(Path("data"), seed=0)
    assert (arrays.names, arrays.y.tolist()) == (("f1", "f2"), [59, 60, 58])
    assert arrays.x[:, 0, 0, 0].tolist() == [1, 0, 2]


def test_shakespeare_from_the_hub_keeps_its_roles(
    isthmus: Isthmus, the_hub: dict[str, Splits]
) -> None:
    text = "to be or not to be " * 60
    the_hub["flwrlabs/shakespeare"] = {
        "train": [
            {"character_id": role, "x": text[i : i + 80], "y": text[i + 80]}
            for role in ("b", "a")
            for i in range(len(text) - 80)
        ]
    }
    assert isthmus("data", "get", "shakespeare", "--source", "hub").code == 0
    arrays = Shakespeare(split="random").load(Path("data"), seed=0)
    assert (arrays.names, len(arrays.y)) == (("a", "b"), 2 * (len(text) - 80))


WRONG_HUBS: dict[str, Any] = {
    "nothing": {},
    "no such split": {"flwrlabs/femnist": {"test": [{"image": 1}]}},
    "no such column": {"flwrlabs/femnist": {"train": [{"image": image(1)}]}},
    "another size": {
        "flwrlabs/femnist": {
            "train": [{"image": image(1, (3, 3)), "writer_id": "a", "character": 1}]
        }
    },
}


@pytest.mark.parametrize("name", WRONG_HUBS)
def test_a_wrong_hub_is_one_line(isthmus: Isthmus, the_hub: dict[str, Any], name: str) -> None:
    the_hub.update(WRONG_HUBS[name])
    check(isthmus("data", "get", "femnist", "--source", "hub").mistake)
    assert not list(Path("data").glob("femnist/*"))


CLASSES = {"kind": {"_type": "ClassLabel", "names": ["cat", "dog", "newt"]}}


def test_any_set_of_images_is_a_name(isthmus: Isthmus, the_hub: dict[str, Splits]) -> None:
    """The hub says which column is an image and which a class; a test split is the server's."""
    features = {"photo": {"_type": "Image"}, **CLASSES}
    rows = [{"photo": image(i, (6, 4)), "kind": i % 2, "who": "ba"[i // 10]} for i in range(20)]
    save(Path("data/hub/me/pets"), {"train": rows, "test": rows[:5]}, features)
    arrays = Hub("me/pets", channels=1).load(Path("data"), seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((20, 1, 4, 6), (5, 1, 4, 6))
    assert arrays.x[:, 0, 0, 0].tolist() == list(range(20))
    assert (arrays.classes, arrays.labels) == (3, ("cat", "dog", "newt"))
    owned = Hub("me/pets", client="who", size=8).load(Path("data"), seed=0)
    assert (owned.names, owned.owner[[0, 19]].tolist()) == (("a", "b"), [1, 0])
    assert owned.x.shape == (20, 3, 8, 8)
    few = ["--set", "clients=2", "--set", "clients_per_round=1"]
    assert isthmus("data", "show", "--data", "hf:me/pets", *few).code == 0


def test_a_set_of_numbers_is_got_by_its_name(isthmus: Isthmus, the_hub: dict[str, Splits]) -> None:
    the_hub["me/rows"] = {
        "train": [{"a": i / 2, "b": [i, 1], "label": "yn"[i % 2]} for i in range(20)]
    }
    assert isthmus("data", "get", "hf:me/rows").out == "hf:me/rows: data/hub/me/rows\n"
    arrays = Hub("me/rows").load(Path("data"), seed=0)
    assert arrays.x[3].tolist() == [1.5, 3, 1]
    assert (arrays.labels, arrays.y[:2].tolist()) == (("n", "y"), [1, 0])
    check(isthmus("data", "get", "hf:me/none").mistake)


def test_a_mistake_in_a_name_is_one_line(tmp_path: Path) -> None:
    for config in ("one", "two"):
        save(tmp_path / "hub/me/rows", {"train": [{"a": 1.0, "y": 0}] * 3}, {}, config)
    for source in (
        Hub("me/none"),
        Hub("me/rows"),
        Hub("me/rows", config="one"),
        Hub("me/rows", config="one", label="a"),
    ):
        with raises(IsthmusError):
            source.load(tmp_path, seed=0)
    save(
        tmp_path / "hub/me/sizes",
        {"train": [{"i": image(1, (n, 4)), "y": 0} for n in (4, 5)]},
        {"i": {"_type": "Image"}},
    )
    with raises(IsthmusError):
        Hub("me/sizes", label="y").load(tmp_path, seed=0)
