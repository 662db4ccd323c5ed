"""Getting data: from a server in this process that dies, lies, loops and dawdles."""

import hashlib
import io
import json
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check
from isthmus.data.get import download, hub, origins
from isthmus.data.get.download import Patience
from isthmus.data.get.origins import ORIGINS, Origin, OriginFile
from isthmus.errors import IsthmusError

BODY = np.random.default_rng(0).bytes(300_000)
CALM = Patience(seconds=60, slowest=1000, pauses=(0.0, 0.0))


class Server:
    """Serves BODY in the ways that a mirror may fail; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.closing = threading.Event()
        self.body = BODY
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                server.asked.append((self.path, wanted))
                begun = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
                getattr(self, self.path.strip("/"))(begun)

            def reply(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                if "Content_Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def good(self, begun: int, most: int | None = None) -> None:
                if begun >= len(server.body) and begun:
                    self.reply(416, b"")
                    return
                rest = server.body[begun:]
                headers = {"Content_Length": str(len(rest))}
                if begun:
                    headers["Content_Range"] = f"bytes {begun}-{begun + len(rest) - 1}/*"
                self.reply(206 if begun else 200, rest[:most], **headers)
                if most is not None and most < len(rest):
                    self.close_connection = True

            def dying(self, begun: int) -> None:
                self.good(begun, most=100_000)

            def stubborn(self, begun: int) -> None:
                self.good(0)

            def slowly(self, begun: int) -> None:
                time.sleep(0.4)
                self.good(begun)

            def fading(self, begun: int) -> None:
                self.good(0, most=1000)

            def elsewhere(self, begun: int) -> None:
                self.reply(206, b"x", Content_Range="bytes 5-5/*")

            def wrong(self, begun: int) -> None:
                self.reply(200, bytes(len(server.body)))

            def endless(self, begun: int) -> None:
                self.reply(200, server.body * 2)

            def busy(self, begun: int) -> None:
                status = 503 if len(server.asked) < 3 else 200
                self.reply(status, server.body if status == 200 else b"")

            def loop(self, begun: int) -> None:
                self.reply(302, b"", Location="/loop")

            def moved(self, begun: int) -> None:
                self.reply(302, b"", Location="/good")

            def gone(self, begun: int) -> None:
                self.reply(404, b"")

            def silent(self, begun: int) -> None:
                server.closing.wait(60)
                self.close_connection = True

            def unasked(self, begun: int) -> None:
                self.reply(206, server.body[5:10], Content_Range="bytes 5-9/*")

            def unranged(self, begun: int) -> None:
                self.reply(206, server.body)

            def flickering(self, begun: int) -> None:
                """Gives the beginning, then says that it was another file: for ever."""
                if begun:
                    self.reply(206, b"x", Content_Range="bytes 5-5/*")
                else:
                    self.good(0, most=100_000)

            def nonsense(self, begun: int) -> None:
                self.wfile.write(b"what is this?\r\n\r\n")
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:  # the program hung up
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def file(self, *ways: str, path: str = "set/file.bin") -> OriginFile:
        port = self.http.server_port
        mirrors = tuple(f"http://127.0.0.1:{port}/{way}" for way in ways)
        return OriginFile(path, hashlib.md5(self.body).hexdigest(), len(self.body), mirrors)

    def close(self) -> None:
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.close()


def nothing(what: str, done: int, total: int) -> None:
    pass


def get(file: OriginFile, root: Path, patience: Patience = CALM, hub: bool = True) -> Path:
    target = root / file.path
    download.download_file("set", file, target, hub, nothing, patience)
    return target


def refused(file: OriginFile, root: Path, patience: Patience = CALM) -> str:
    with pytest.raises(IsthmusError) as error:
        get(file, root, patience)
    assert "\n" not in str(error.value)
    assert not (root / file.path).exists()
    return str(error.value)


@pytest.mark.parametrize("way", ["good", "moved", "busy", "dying"])
def test_a_file_arrives_whole(server: Server, tmp_path: Path, way: str) -> None:
    """`dying` breaks off after every 100,000 bytes, each of which is more than a chunk."""
    path = get(server.file(way), tmp_path)
    assert path.read_bytes() == BODY
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]


def test_a_slow_mirror_is_left_by_the_bytes_since_the_last_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look every 10 s. 10,000 bytes at its end are enough for 10 s, and not for 11."""
    now = [0.0]
    monkeypatch.setattr(download.time, "monotonic", lambda: now[0])
    speed = download.ReadDeadline(Patience(seconds=10, slowest=1000))
    for now[0] in (5.0, 10.0, 15.0, 20.0):
        speed.count(5_000)
    speed.count(9_999)
    now[0] = 30.0
    speed.count(1)
    now[0] = 41.0
    with pytest.raises(TimeoutError):
        speed.count(10_000)


def test_a_silent_mirror_is_asked_once(server: Server, tmp_path: Path) -> None:
    file = server.file("silent")
    assert "timed out" in refused(file, tmp_path, CALM._replace(seconds=1.0))
    assert len(server.asked) == 1


def test_a_broken_off_file_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    get(server.file("dying"), tmp_path)
    assert server.asked == [
        ("/dying", None),
        ("/dying", "bytes=100000-"),
        ("/dying", "bytes=200000-"),
    ]


def test_a_later_call_goes_on_where_an_earlier_one_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").write_bytes(BODY[:1234])
    assert get(server.file("good"), tmp_path).read_bytes() == BODY
    assert server.asked == [("/good", "bytes=1234-")]


def test_a_part_that_is_whole_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").write_bytes(BODY)
    assert get(server.file("good"), tmp_path).read_bytes() == BODY
    assert server.asked == []


@pytest.mark.parametrize("length", [1234, len(BODY), len(BODY) + 5])
@pytest.mark.parametrize("way", ["good", "stubborn"])
def test_a_part_of_another_file_is_replaced(
    server: Server, tmp_path: Path, way: str, length: int
) -> None:
    """Its bytes are wrong; the checksum says so, or the server, and the file comes anew."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").write_bytes(bytes(length))
    assert get(server.file(way), tmp_path).read_bytes() == BODY


def test_the_next_mirror_is_tried_and_goes_on_with_the_same_part(
    server: Server, tmp_path: Path
) -> None:
    file = server.file("gone", "fading", "good")
    assert get(file, tmp_path).read_bytes() == BODY
    assert server.asked[0] == ("/gone", None)
    assert server.asked[-1] == ("/good", "bytes=1000-")


FAILURES = {
    "gone": 1,
    "loop": 5,
    "wrong": 1,
    "endless": 1,
    "fading": 3,
    "unasked": 3,
    "unranged": 3,
    "nonsense": 3,
}


@pytest.mark.parametrize("way", FAILURES)
def test_a_mirror_that_fails_is_named_with_the_reason(
    server: Server, tmp_path: Path, way: str
) -> None:
    """What may pass is tried three times: once and after two pauses. urllib goes to one address
    five times."""
    asked = FAILURES[way]
    check(refused(server.file(way), tmp_path))
    assert len(server.asked) == asked


def test_a_server_that_sends_another_range_is_asked_from_the_start(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").write_bytes(BODY[:10])
    assert "sent the range 'bytes 5-5/*' for 10-" in refused(
        server.file("elsewhere"), tmp_path, CALM._replace(pauses=())
    )
    assert not (tmp_path / "set/file.bin.part").exists()


def test_a_mirror_that_begins_anew_for_ever_is_left(server: Server, tmp_path: Path) -> None:
    """The first 100,000 bytes count as progress once."""
    assert "stopped after 100,000" in refused(server.file("flickering"), tmp_path)
    assert len(server.asked) == 3


def get_at_once(name: str, origin: Origin, root: Path, force: bool) -> None:
    """Four get a set. Threads are as good as processes: a lock belongs to who opened its file."""
    threads = [
        threading.Thread(
            target=download.download_all,
            args=(name, origin, root),
            kwargs={"force": force, "show": nothing, "patience": CALM},
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_several_who_get_a_set_at_once_one_does_and_the_others_take_it(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = server.file("slowly")
    origin = Origin("a set", "none", (("set/file.bin",),), (file,))
    get_at_once("set", origin, tmp_path, force=False)
    assert (tmp_path / "set/file.bin").read_bytes() == BODY
    assert server.asked == [("/slowly", None)]
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        *("set", "set/file.bin"),
    ]
    assert "another process downloads set to" in capsys.readouterr().err


def test_an_archive_is_unpacked_by_one_of_several(server: Server, tmp_path: Path) -> None:
    server.body = zipped({"tree/a.txt": BODY})
    origin = Origin(
        "a tree", "none", (("tree/a.txt",),), (server.file("good", path="t.zip"),), "tree"
    )
    get_at_once("tree", origin, tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    assert (tmp_path / "tree/a.txt").read_bytes() == BODY


def test_a_wrong_checksum_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    refused(server.file("wrong"), tmp_path)
    assert list((tmp_path / "set").iterdir()) == []


def test_nobody_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = OriginFile("file.bin", "0" * 32, 5, ("http://127.0.0.1:9/x",))
    assert "Connection refused" in refused(file, tmp_path)


def test_a_full_disk_is_one_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    file = server.file("good")._replace(nbytes=5_000_000)
    assert "file.bin needs 5 MB" in refused(file, tmp_path)
    assert server.asked == []


def test_a_disk_that_fills_meanwhile_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").symlink_to("/dev/full")
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    assert "(No space left on device)" in refused(server.file("good"), tmp_path)


def test_a_root_that_is_no_folder_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    assert "cannot be read or written (" in refused(server.file("good"), tmp_path / "root")


def zipped(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return packed.getvalue()


def test_an_archive_becomes_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/old.txt").write_text("old")
    archive = tmp_path / "tree.zip"
    archive.write_bytes(zipped({"tree/": b"", "tree/a.txt": b"a", "tree/deep/b.txt": b"b"}))
    download.unpack(archive, "tree", nothing)
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert files == ["tree/a.txt", "tree/deep/b.txt"]


HOSTILE: dict[str, bytes] = {
    "an absolute name": zipped({"/etc/x": b"x"}),
    "a name that climbs": zipped({"../../x": b"x"}),
    "no archive": b"hello",
    "a damaged archive": zipped({"tree/x": b"hello"}).replace(b"hello", b"jello"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_writes_nothing(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "root" / "tree.zip"
    archive.parent.mkdir()
    archive.write_bytes(HOSTILE[name])
    with pytest.raises(IsthmusError, match=r"tree.zip cannot be read"):
        download.unpack(archive, "tree", nothing)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


@pytest.fixture
def sets(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Puts two data sets of the local server in the place of the real ones."""
    server.body = zipped({"tree/a.txt": BODY})
    known = {
        "plain": Origin("plain", "MIT", (("set/file.bin",),), (server.file("good"),)),
        "tree": Origin(
            "tree",
            "MIT",
            (("tree/a.txt",),),
            (server.file("good", path="tree.zip"),),
            unpacks="tree",
        ),
        "broken": Origin("broken", "MIT", (("broken",),), (server.file("gone", path="broken"),)),
    }
    monkeypatch.setattr(origins, "ORIGINS", known)
    return server


def test_get_puts_a_set_in_its_place(isthmus: Isthmus, sets: Server) -> None:
    code, out, err = isthmus("data", "get", "plain")
    assert (code, out) == (0, "plain is here: data/set/file.bin\n")
    assert "set/file.bin: 100 % of 300," in err
    assert Path("data/set/file.bin").read_bytes() == sets.body


def test_what_is_here_is_not_got_again_but_by_force(isthmus: Isthmus, sets: Server) -> None:
    Path("data/set").mkdir(parents=True)
    Path("data/set/file.bin").write_bytes(b"mine")
    check(isthmus("data", "get", "plain").out)
    assert sets.asked == []
    assert isthmus("data", "get", "plain", "--force").code == 0
    assert Path("data/set/file.bin").read_bytes() == sets.body


def test_get_unpacks_what_is_read_from_a_folder(isthmus: Isthmus, sets: Server) -> None:
    assert isthmus("data", "get", "tree", "--data-root", "there").code == 0
    assert Path("there/tree/a.txt").read_bytes() == BODY
    assert not Path("there/tree.zip").exists()


def test_an_archive_put_there_by_hand_is_checked_and_unpacked(
    isthmus: Isthmus, sets: Server
) -> None:
    Path("data").mkdir()
    Path("data/tree.zip").write_bytes(sets.body)
    assert isthmus("data", "get", "tree").code == 0
    assert sets.asked == []
    Path("data/tree.zip").write_bytes(b"other")
    assert isthmus("data", "get", "tree").code == 0
    Path("data/tree/a.txt").unlink()
    assert "data/tree.zip has MD5 " in isthmus("data", "get", "tree").mistake


def test_a_dead_link_is_one_line_and_loses_nothing(isthmus: Isthmus, sets: Server) -> None:
    Path("data").mkdir()
    Path("data/broken").write_bytes(b"mine")
    said = isthmus("data", "get", "broken", "--force")
    assert "HTTP Error 404" in said.mistake
    assert "put the file into data by hand" in said.mistake
    assert Path("data/broken").read_bytes() == b"mine"


MISTAKES: dict[str, list[str]] = {
    "an unknown name": ["minst"],
    "another source": ["mnist", "--source", "torrent"],
    "nothing published": ["femnist"],
    "nothing at all": ["imagenet"],
    "not on the hub": ["cifar10", "--source", "hub"],
    "no extra": ["mnist", "--source", "hub"],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(
    isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    check(isthmus("data", "get", *MISTAKES[name]).mistake)
    assert list(Path().iterdir()) == []


def test_list_says_what_is_here(isthmus: Isthmus) -> None:
    Path("data/shakespeare").mkdir(parents=True)
    Path("data/shakespeare/roles.json.gz").touch()
    entries = {entry["name"]: entry for entry in json.loads(isthmus("data", "list", "--json").out)}
    assert list(entries) == list(ORIGINS)
    assert entries["shakespeare"]["found"] == "data/shakespeare/roles.json.gz"
    assert entries["cifar10"]["found"] is None
    assert entries["cifar10"]["nbytes"] == 170_498_071
    assert entries["femnist"]["sources"] == ["hub"]
    shown = isthmus("data", "list").out
    assert all(name in shown for name in ORIGINS)
    assert "here: data/shakespeare/roles.json.gz" in shown
    assert "not here: data/cifar-10-batches-py/*_batch*" in shown


def test_three_of_four_files_are_not_the_set(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    names = [path.removeprefix("mnist/").removesuffix("*") for path in ORIGINS["mnist"].places[0]]
    for name in names[:3]:
        (folder / name).touch()
    (folder / f"{names[3]}.gz.part").touch()
    assert ORIGINS["mnist"].find(tmp_path) is None
    (folder / f"{names[3]}.gz").touch()
    assert ORIGINS["mnist"].find(tmp_path) == folder / names[0]


def test_the_table_is_sound() -> None:
    """A checksum has 32 hexadecimal digits; what is not unpacked lies where it is looked for."""
    for name, origin in ORIGINS.items():
        assert origin.files or origin.by_hand, name
        for file in origin.files:
            assert re.fullmatch("[0-9a-f]{32}", file.md5)
            assert file.nbytes > 0
            assert len(file.mirrors) > 1
            assert all(re.match(r"https?://", url) for url in file.mirrors)
            patterns = {pattern for place in origin.places for pattern in place}
            assert origin.unpacks or any(Path(file.path).match(pattern) for pattern in patterns)
    assert set(hub.WRITERS) == {origin.hub_form for origin in ORIGINS.values() if origin.hub}


def test_listing_needs_no_torch_and_no_network() -> None:
    code = (
        "import sys; sys.argv = ['isthmus', 'data', 'list', '--json']\n"
        "from isthmus.cli.app import main; main()\n"
        "print({'torch', 'numpy', 'pyarrow'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
