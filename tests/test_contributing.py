"""What CONTRIBUTING.md says: places that are there, and steps that are followed in a copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
STEPS = PAGE.partition("## Add a method")[2]


def read_block(step: int) -> str:
    """Reads the block of code that belongs to a step."""
    text = STEPS[STEPS.index(f"**{step}. ") :]
    match = re.search(r"```\w+\n(.*?)```", text, flags=re.DOTALL)
    assert match is not None
    return match.group(1)


def add_before_the_end(path: Path, mark: str, text: str, end: str) -> None:
    """Puts text last in what begins at a mark."""
    before, found, after = path.read_text().partition(mark)
    assert found
    body, closed, rest = after.partition(end)
    path.write_text(f"{before}{found}{body}\n{text.rstrip()}{closed}{rest}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which the method is added."""
    place = tmp_path_factory.mktemp("copy")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    methods = place / "src" / "isthmus" / "methods"
    (methods / "fedavgm.py").write_text(read_block(1))
    table = methods / "__init__.py"
    add_before_the_end(table, "METHODS = Registry(", read_block(2), "\n    },")
    row = f"{read_block(3).rstrip()},"
    add_before_the_end(place / "tests/contract/table.py", "ROWS = [", row, "\n]")
    (place / "tests/methods/test_fedavgm.py").write_text(read_block(4))
    (place / "docs/methods/fedavgm.md").write_text(read_block(6))
    return place


def run(copy: Path, *words: str) -> str:
    """Runs a program in the copy, of the copy's own source."""
    variables = dict(re.findall(r"(\w+)=(\S+)", read_block(5).splitlines()[0]))
    path = os.pathsep.join([str(copy / "src"), str(copy / "tests")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**os.environ, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_steps_make_a_method_that_keeps_the_contract(copy: Path) -> None:
    chosen = "fedavgm or every_method_has"
    places = ["tests/contract/test_contract.py", "tests/methods/test_fedavgm.py"]
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen]
    out = run(copy, "-m", "pytest", *options, *places, "tests/test_rules.py")
    assert re.search(r"\d{2,} passed", out)


def test_its_bits_are_added_to_those_on_file(copy: Path) -> None:
    words = read_block(5).splitlines()[1].split()
    assert words[1] == "tests/contract/digests.py"
    assert words[3:] == [">>", "tests/contract/digests.toml"]
    out = run(copy, *words[1:3])
    assert out.strip().startswith("[methods.fedavgm]")


def test_the_places_to_add_to_are_there() -> None:
    text = PAGE.partition("## Where to add what")[2].partition("\n## ")[0]
    places = set(re.findall(r"`([\w/]+(?:\.py|/))`", text))
    assert len(places) > 15
    for place in places:
        folder, _, name = place.rpartition("/")
        there = ROOT / "src" / "isthmus" / (folder if name.isupper() else place)
        assert there.exists() or name in ("NAME.py", "COMMAND.py")
        assert there.parent.is_dir()
