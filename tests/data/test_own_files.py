"""Own arrays and images in files: who has what, and files that are damaged or something else."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from commands import Isthmus
from golden import check
from isthmus import Federation, IsthmusError
from isthmus.data.arrays import Arrays
from isthmus.data.own.arrays import Files
from isthmus.data.own.folders import Folders
from isthmus.data.own.own_files import detect_kind, find_own_files
from isthmus.streams import stream

X, Y = np.arange(60, dtype=np.float32).reshape(20, 3), np.arange(20) % 2


def files(path: Path, **options: Any) -> Arrays:
    return Files(str(path), **options).load(Path("nowhere"), seed=0)


def folders(path: Path, **options: Any) -> Arrays:
    return Folders(str(path), **options).load(Path("nowhere"), seed=0)


def refused(read: Callable[[], Any]) -> str:
    with pytest.raises(IsthmusError) as error:
        read()
    assert "\n" not in str(error.value)
    return str(error.value)


WRONG: dict[str, dict[str, NDArray[Any]]] = {
    "without labels": {"x": X},
    "both forms": {"x": X, "y": Y, "train_x": X, "train_y": Y},
    "lengths": {"x": X, "y": Y[:-1]},
    "one number each": {"x": X[:, 0], "y": Y},
    "fractions": {"x": X, "y": Y + 0.5},
    "a label that is nan": {"x": X, "y": np.where(np.arange(20) == 4, np.nan, Y)},
    "an empty label": {"x": X, "y": np.array(["a", "b", " ", "a"] * 5)},
    "a client that is nan": {"x": X, "y": Y, "client": np.where(np.arange(20) > 6, np.nan, Y)},
    "an empty client": {"x": X, "y": Y, "client": np.array([b"a", b"b", b"nan", b""] * 5)},
    "negative": {"x": X, "y": Y - 1},
    "a number too large": {"x": X, "y": Y + 10**12},
    "nan": {"x": X * np.nan, "y": Y},
    "words": {"x": X.astype(str), "y": Y},
    "complex": {"x": X * 1j, "y": Y},
    "nothing": {"x": X[:0], "y": Y[:0]},
    "owners": {"x": X, "y": Y, "client": Y[:3]},
    "parts": {"x": X, "y": Y, "split": Y + 2},
}


class TestFiles:
    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_a_file_per_client(self, tmp_path: Path, suffix: str) -> None:
        for name, rows in {"10": slice(0, 5), "9": slice(5, 20)}.items():
            save(tmp_path / f"{name}{suffix}", x=X[rows], y=Y[rows])
        arrays = files(tmp_path)
        assert arrays.names == ("9", "10")  # in the order of the numbers
        assert np.bincount(arrays.owner).tolist() == [15, 5]
        assert np.array_equal(arrays.x[arrays.owner == 0], X[5:])
        assert (arrays.classes, arrays.split, arrays.labels) == (2, None, ())

    def test_files_that_come_divided(self, tmp_path: Path) -> None:
        parts = {"train_x": X[:10], "train_y": Y[:10], "test_x": X[10:14], "test_y": Y[10:14]}
        save(tmp_path / "ann.npz", **parts)
        save(tmp_path / "bob.npz", x=X[14:], y=Y[14:])
        arrays = files(tmp_path)
        assert arrays.split.tolist() == [0] * 10 + [2] * 4 + [0] * 6
        federation = Federation.from_owners(arrays, 0.2, 0.1, seed=1)
        assert federation.splits[0].test.tolist() == [10, 11, 12, 13]
        assert federation.sizes(1) == (4, 1, 1)

    def test_one_file_says_whose_and_in_which_part(self, tmp_path: Path) -> None:
        client, split = np.tile(["b", "a"], 10), np.repeat(["train", "test"], 10)
        save(tmp_path / "all.npz", x=X, y=Y, client=client, split=split)
        arrays = files(tmp_path / "all.npz")
        assert arrays.names == ("a", "b")
        assert arrays.owner.tolist() == [1, 0] * 10
        assert arrays.split.tolist() == [0] * 10 + [2] * 10

    def test_words_are_classes_in_their_order(self, tmp_path: Path) -> None:
        save(tmp_path / "a.npz", x=X, y=np.array(["no", "yes", "maybe", "no"] * 5))
        arrays = files(tmp_path)
        assert (arrays.labels, arrays.classes) == (("maybe", "no", "yes"), 3)
        assert arrays.y[:4].tolist() == [1, 2, 0, 1]

    @pytest.mark.parametrize("kind", ["U", "S"])
    def test_one_name_in_several_spellings_is_one_and_that_is_said(
        self, tmp_path: Path, kind: str
    ) -> None:
        labels = np.array(["yes", "1", " yes", "1.0"] * 5, kind)
        save(tmp_path / "a.npz", x=X, y=labels, client=np.array(["b", "b ", "a", "10"] * 5, kind))
        arrays = files(tmp_path / "a.npz")
        assert (arrays.labels, arrays.y[:4].tolist()) == (("1", "yes"), [1, 0, 1, 0])
        assert (arrays.names, arrays.owner[:4].tolist()) == (("10", "a", "b"), [2, 2, 1, 0])
        said = "in the labels ' yes' counts as 'yes', '1.0' counts as '1'"
        assert arrays.notes == (said, "in the clients 'b ' counts as 'b'")

    def test_bytes_stay_bytes_and_are_scaled(self, tmp_path: Path) -> None:
        save(tmp_path / "a.npz", x=np.full((20, 1, 2, 2), 51, np.uint8), y=Y)
        arrays = files(tmp_path, scale=255.0)
        assert arrays.x.dtype == np.uint8
        federation = Federation.from_owners(arrays, 0.2, 0.1, seed=1)
        assert federation.split(0, "train").x.unique().tolist() == pytest.approx([0.2])

    @pytest.mark.parametrize("name", WRONG)
    def test_other_arrays_are_refused(self, tmp_path: Path, name: str) -> None:
        given = WRONG[name]
        save(tmp_path / "wrong.npz", **given)
        check(refused(lambda: files(tmp_path / "wrong.npz")))

    def test_clients_of_two_kinds_are_refused(self, tmp_path: Path) -> None:
        save(tmp_path / "a.npz", x=X, y=Y)
        save(tmp_path / "b.npz", x=X[:, :2], y=Y)
        check(refused(lambda: files(tmp_path)))
        (tmp_path / "b.npz").unlink()
        (tmp_path / "notes.txt").write_text("x")
        check(refused(lambda: files(tmp_path)))

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        class Harm:
            def __reduce__(self) -> Any:
                return (Path.touch, (tmp_path / "harmed",))

        np.savez(tmp_path / "harm.npz", x=np.array([Harm()] * 3, dtype=object), y=np.arange(3))
        check(refused(lambda: files(tmp_path / "harm.npz")))
        (tmp_path / "harm.npz").write_bytes(b"\x80\x04cos\nsystem\n")
        check(refused(lambda: files(tmp_path / "harm.npz")))
        assert not (tmp_path / "harmed").exists()

    def test_a_file_that_unpacks_to_more_than_there_is_memory_is_not_unpacked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ten million zeros are 40 MB in 40 kB; here 1 MB is free."""
        zeros = np.zeros((100, 100_000), np.float32)
        np.savez_compressed(tmp_path / "bomb.npz", x=zeros, y=np.zeros(100, int))
        monkeypatch.setattr("isthmus.data.own.arrays.free_memory", lambda: 10**6)
        monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
        check(refused(lambda: files(tmp_path / "bomb.npz")))

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_damaged_files_get_one_line(self, tmp_path: Path, suffix: str) -> None:
        """Cut short anywhere, it is refused; with bytes changed, refused or read as numbers."""
        path = tmp_path / f"a{suffix}"
        save(path, x=X, y=Y)
        whole, rng = path.read_bytes(), stream(1, "damage")
        for length in rng.integers(len(whole), size=40):
            path.write_bytes(whole[:length])
            refused(lambda: files(path))
        for _ in range(40):
            damaged = bytearray(whole)
            for place in rng.integers(len(whole), size=3):
                damaged[place] = rng.integers(256)
            path.write_bytes(damaged)
            try:
                read = len(files(path).y)
            except IsthmusError as error:
                read = 1 - str(error).count("\n")
            assert read > 0


def save(path: Path, **arrays: NDArray[Any]) -> None:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


class TestFolders:
    def test_arrays_in_a_folder_per_client(self, tmp_path: Path) -> None:
        for client in ("ann", "bob"):
            (tmp_path / client).mkdir()
        save(tmp_path / "ann" / "train.npz", x=X[:8], y=Y[:8])
        save(tmp_path / "ann" / "test.npz", x=X[8:10], y=Y[8:10])
        save(tmp_path / "bob" / "monday.npz", x=X[10:15], y=Y[10:15])
        save(tmp_path / "bob" / "tuesday.npz", x=X[15:], y=Y[15:])
        arrays = folders(tmp_path)
        assert arrays.names == ("ann", "bob")
        by_owner = [arrays.split[arrays.owner == i].tolist() for i in (0, 1)]
        assert by_owner == [[2] * 2 + [0] * 8, [0] * 10]
        assert detect_kind(tmp_path) == "folders"

    def test_arrays_in_a_folder_per_part(self, tmp_path: Path) -> None:
        for part, rows in {"train": slice(0, 12), "validation": slice(12, 15)}.items():
            (tmp_path / "ann" / part).mkdir(parents=True)
            save(tmp_path / "ann" / part / "a.safetensors", x=X[rows], y=Y[rows])
        assert folders(tmp_path).split.tolist() == [0] * 12 + [1] * 3

    def test_stray_files_and_empty_folders_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "ann").mkdir()
        check(refused(lambda: folders(tmp_path)))
        (tmp_path / "ann" / "read.me").write_text("x")
        check(refused(lambda: folders(tmp_path)))
        (tmp_path / "ann" / "read.me").unlink()
        (tmp_path / ".DS_Store").write_text("x")  # hidden files are nobody's data
        save(tmp_path / "ann" / "a.npz", x=X, y=Y)
        assert folders(tmp_path).names == ("ann",)
        (tmp_path / "list.txt").write_text("x")
        check(refused(lambda: folders(tmp_path)))


class TestImages:
    @pytest.fixture(autouse=True)
    def pillow(self) -> None:
        pytest.importorskip("PIL")

    def write(self, path: Path, colour: int, size: tuple[int, int] = (6, 4)) -> None:
        from PIL import Image

        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (colour, 0, 255)).save(path)

    def test_a_folder_per_class(self, tmp_path: Path) -> None:
        """Six wide and four high: 3 x 4 x 6; classes are all that occur, in their order."""
        self.write(tmp_path / "ann" / "cat" / "1.png", 10)
        self.write(tmp_path / "ann" / "dog" / "1.png", 20)
        self.write(tmp_path / "bob" / "ape" / "1.png", 30)
        arrays = folders(tmp_path)
        assert (arrays.x.shape, arrays.x.dtype, arrays.scale) == ((3, 3, 4, 6), np.uint8, 255.0)
        assert arrays.x[:, 0, 0, 0].tolist() == [10, 20, 30]
        assert (arrays.labels, arrays.y.tolist()) == (("ape", "cat", "dog"), [1, 2, 0])
        assert arrays.owner.tolist() == [0, 0, 1]
        assert arrays.split is None
        assert folders(tmp_path, channels=1, size=8).x.shape == (3, 1, 8, 8)

    def test_a_folder_per_part(self, tmp_path: Path) -> None:
        self.write(tmp_path / "ann" / "train" / "cat" / "1.jpg", 10)
        self.write(tmp_path / "ann" / "test" / "cat" / "2.jpg", 20)
        assert sorted(folders(tmp_path).split.tolist()) == [0, 2]

    def test_images_of_two_sizes_need_a_size(self, tmp_path: Path) -> None:
        self.write(tmp_path / "ann" / "cat" / "1.png", 10)
        self.write(tmp_path / "ann" / "cat" / "2.png", 10, size=(9, 9))
        check(refused(lambda: folders(tmp_path)))
        assert folders(tmp_path, size=4).x.shape == (2, 3, 4, 4)

    def test_images_beside_arrays_are_refused(self, tmp_path: Path) -> None:
        self.write(tmp_path / "ann" / "cat" / "1.png", 10)
        save(tmp_path / "ann" / "a.npz", x=X, y=Y)
        check(refused(lambda: folders(tmp_path)))

    def test_damaged_images_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "ann" / "cat" / "1.png"
        self.write(path, 10)
        whole = path.read_bytes()
        for content in (whole[:-30], b"", b"GIF89a", b"%PDF", whole[:20]):
            path.write_bytes(content)
            check(refused(lambda: folders(tmp_path)))

    def test_an_image_of_too_many_pixels_is_not_unpacked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Twenty-four pixels, of which eleven are thought to be many: more than twice as many are
        an error of Pillow's, more than that many a warning; both are refused."""
        self.write(tmp_path / "ann" / "cat" / "1.png", 10)
        for most in (11, 20):
            monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", most)
            check(refused(lambda: folders(tmp_path)))

    def test_a_missing_pillow_is_told_with_the_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.write(tmp_path / "ann" / "cat" / "1.png", 10)
        without(monkeypatch, "PIL")
        check(refused(lambda: folders(tmp_path)))


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Lets a package be missing."""
    plain = builtins.__import__

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)


def test_the_kind_is_found_by_what_is_there(tmp_path: Path) -> None:
    for name in ("a.csv", "b.TSV", "c.parquet", "d.npz", "e.safetensors", "f.xlsx"):
        (tmp_path / name).write_text("")
    kinds = [detect_kind(tmp_path / name) for name in ("a.csv", "b.TSV", "c.parquet", "d.npz")]
    assert kinds == ["table", "table", "table", "files"]
    assert detect_kind(tmp_path) == "files"
    check(refused(lambda: detect_kind(tmp_path / "f.xlsx")))
    (tmp_path / "empty").mkdir()
    check(refused(lambda: detect_kind(tmp_path / "empty")))


def test_a_file_that_moved_is_found_by_its_name_in_the_data_root(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    assert find_own_files("/long/gone/a.csv", tmp_path) == tmp_path / "a.csv"
    check(refused(lambda: find_own_files("a.tsv", tmp_path)))
    check(refused(lambda: find_own_files("", tmp_path)))


def test_a_federation_takes_a_split_and_names_of_classes() -> None:
    split = ["train"] * 14 + ["validation"] * 2 + ["test"] * 4
    federation = Federation.of(X, Y, np.zeros(20), split=split, labels=("no", "yes"))
    assert federation.sizes(0) == (14, 2, 4)
    assert federation.arrays.labels == ("no", "yes")
    for wrong in ({"split": split[:-1]}, {"split": ["dev"] * 20}, {"labels": ("no",)}):
        check(refused(lambda w=wrong: Federation.of(X, Y, np.zeros(20), **w)))


def test_a_federation_needs_an_owner_for_each_row() -> None:
    for missing in (np.nan, None):
        clients = np.array(["b", missing] * 10, object)
        check(refused(lambda c=clients: Federation.of(X, Y, c)))
    federation = Federation.of(X, Y, np.array(["b", "b "] * 10, object))
    assert (federation.names, len(federation)) == (("b",), 1)
    check(*federation.notes)


def test_clients_files_may_say_how_much_examples_count(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", x=X, y=Y, weight=np.arange(20))
    held = {"test_x": X[:4], "test_y": Y[:4]}
    save(tmp_path / "b.npz", train_x=X[:6], train_y=Y[:6], train_weight=np.full(6, 0.5), **held)
    arrays = files(tmp_path)
    assert arrays.weight is not None
    assert arrays.weight.tolist() == [*range(20), *[0.5] * 6, *[1] * 4]
    save(tmp_path / "b.npz", x=X, y=Y)
    check(refused(lambda: files(tmp_path)))
    save(tmp_path / "b.npz", x=X, y=Y, weight=-np.ones(20))
    check(refused(lambda: files(tmp_path)))


def test_a_file_of_tokens_trains_a_network_that_looks_them_up(isthmus: Isthmus) -> None:
    symbols = np.arange(120).reshape(40, 3) % 7
    save(Path("text.npz"), x=symbols, y=symbols[:, 0] % 2, client=np.arange(40) % 2)
    run = ["run", "--data", "text.npz", "--method", "fedavg", "--rounds", "1", "--set", "epochs=1"]
    lstm = ["--set", "model=stackedlstm", "--set", "model.vocabulary=7", "--out", "run"]
    ended = isthmus(*run, "--set", "data.tokens=true", *lstm)
    assert ended.code == 0, ended.err
    save(Path("new.npz"), x=symbols[:2])
    asked = isthmus("predict", "run", "--client", "1", "--data", "new.npz", "--out", "new.csv")
    assert asked.code == 0, asked.err
    save(Path("new.npz"), x=symbols[:2] / 2)
    again = isthmus("predict", "run", "--client", "1", "--data", "new.npz", "--out", "new.csv")
    check(again.mistake)
    save(Path("half.npz"), x=symbols / 2, y=symbols[:, 0] % 2, client=np.arange(40) % 2)
    run[2] = "half.npz"
    check(isthmus(*run, "--set", "data.tokens=true").mistake)


def test_a_run_on_files_can_be_resumed_and_notices_other_data(isthmus: Isthmus) -> None:
    Path("clients").mkdir()
    for i in range(3):
        save(Path(f"clients/{i}.npz"), x=X + i, y=Y)
    few = ["--method", "fedavg", "--set", "epochs=1"]
    first = isthmus("run", "--data", "clients", *few, "--rounds", "2", "--out", "run")
    assert first.code == 0, first.err
    assert isthmus("resume", "run").digest == first.digest
    save(Path("clients/1.npz"), x=X - 1, y=Y)
    check(isthmus("resume", "run").mistake)
    check(isthmus("run", "--data", "client/").mistake)
    check(isthmus("run", "--data", "clint").mistake)
