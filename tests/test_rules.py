"""Design rules, kept by reading the source."""

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import isthmus
from isthmus.method import Method
from isthmus.methods import METHODS

SOURCE = Path(isthmus.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
METHOD_FILES = sorted({Path(inspect.getfile(type(method))) for method in METHODS.values()})

# The rooms of the house, from the ground up: a room imports from lower floors only; rooms on one
# floor do not know each other.
FLOORS: list[set[str]] = [
    {"errors"},
    {"ranges", "selection", "shelf", "streams", "system"},
    {"tree"},
    {"formulas", "metrics"},
    {"data"},
    {"models"},
    {"task"},
    {"client"},
    {"method"},
    {"context"},
    {"cohort"},
    {"evaluation"},
    {"engines", "methods"},
    {"config"},
    {"records"},
    {"storage", "tracking"},
    {"training"},
    {"runs"},
    {"sites"},
    {"report"},
    {"comparison"},
    {"reproduction"},
    {"cli"},
    {"__init__", "__main__"},
]
# Where less is meant than the floors allow.
ONLY: dict[str, set[str]] = {
    "report": {"errors", "metrics", "records", "selection", "system"},
    "methods": {
        *("client", "cohort", "errors", "formulas", "method", "models", "ranges"),
        *("streams", "task", "tree"),
    },
}

MESSAGES = SOURCE / "engines" / "messages.py"  # between the processes of one run
FLARE = SOURCE / "sites" / "flare"
RAY = SOURCE / "engines" / "ray"

ROOMS = set().union(*FLOORS)
NOT_EVERYWHERE = {
    "torch": {"report", "system"},
    "mlflow": ROOMS - {"tracking"},
    "tensorboard": ROOMS - {"tracking"},
    "torch.utils.tensorboard": ROOMS - {"tracking"},
    "flwr": ROOMS,
    "ray": ROOMS,
    "nvflare": ROOMS,
    "cryptography": ROOMS,
    "pickle": ROOMS,
}


@cache
def imports(path: Path) -> set[str]:
    """All modules that a file imports when it runs, also inside functions."""
    body = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(body)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(body):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "isthmus":
                found |= {f"isthmus.{name.name}" for name in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(SOURCE)) for p in MODULES])
def test_modules_import_only_what_lies_below_them(path: Path) -> None:
    here = room(path)
    floor = next(number for number, rooms in enumerate(FLOORS) if here in rooms)
    below = set().union(*FLOORS[:floor]) & ONLY.get(here, ROOMS)
    inside = {name.split(".")[1] for name in imports(path) if name.startswith("isthmus.")}
    assert inside <= below | {here}
    for outside, rooms in NOT_EVERYWHERE.items():
        there = outside in ("nvflare", "cryptography") and FLARE in path.parents
        there |= outside == "ray" and RAY in path.parents
        if here in rooms and (outside, path) != ("pickle", MESSAGES) and not there:
            assert not any(f"{name}.".startswith(f"{outside}.") for name in imports(path))


def test_no_method_imports_another() -> None:
    """Methods of one family may share what else is in their folder."""
    files = [path.relative_to(SOURCE.parent).with_suffix("") for path in METHOD_FILES]
    names = {".".join(file.parts) for file in files}
    for path in METHOD_FILES:
        assert not imports(path) & names


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(SOURCE)) for p in MODULES])
def test_files_stay_short(path: Path) -> None:
    """A method is its algorithm box and a note to its user; no file is more than one thing."""
    budget = 150 if path in METHOD_FILES else 450
    assert path.read_text().count("\n") <= budget


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(SOURCE)) for p in MODULES])
def test_nothing_is_called_utils(path: Path) -> None:
    assert not {"utils", "util", "helpers", "common", "misc"} & set(
        path.relative_to(SOURCE).with_suffix("").parts
    )


def test_no_method_subclasses_another_and_none_calls_super() -> None:
    for path in METHOD_FILES:
        body = ast.parse(path.read_text())
        for node in ast.walk(body):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                assert bases <= {"Method", "NamedTuple"}
            assert not (isinstance(node, ast.Name) and node.id == "super")


@pytest.mark.parametrize("path", METHOD_FILES, ids=[path.stem for path in METHOD_FILES])
def test_every_method_file_ends_its_docstring_with_its_departures(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert "Limiting case:" in text
    assert text.split("\n\n")[-1].startswith("Departures")


def test_the_public_names_are_these() -> None:
    assert isthmus.__all__ == [
        "Client",
        "Clients",
        "Experiment",
        "Federation",
        "IsthmusError",
        "Method",
        "Point",
        "Run",
        "Task",
        "federate",
        "open",
        "resume",
    ]
    for name in isthmus.__all__:
        assert getattr(isthmus, name).__name__ == name


def test_the_package_and_its_report_come_without_torch() -> None:
    modules = (
        *("isthmus", "isthmus.cli.app", "isthmus.cli.status", "isthmus.report.page"),
        *("isthmus.report.deployment.page", "isthmus.report.deployment.terminal"),
        *("isthmus.sites.events", "isthmus.sites.folders", "isthmus.sites.plan"),
        *("isthmus.sites.flare.supervisor", "isthmus.sites.flare.keeper"),
    )
    code = f"import {', '.join(modules)}, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_method_has_its_page() -> None:
    pages = SOURCE.parents[1] / "docs" / "methods"
    for path in METHOD_FILES:
        assert (pages / f"{path.stem}.md").is_file()


def test_the_top_level_holds_what_a_methods_author_sees() -> None:
    assert len(list(SOURCE.glob("*.py"))) <= 14


def test_the_contract_has_fourteen_members() -> None:
    members = [name for name in vars(Method) if not name.startswith("_")]
    assert len(members) <= 14


def test_the_map_of_the_code_is_the_tree() -> None:
    """One line for each room and module, in its own words."""
    text = (
        (SOURCE.parents[1] / "docs" / "index.md").read_text().partition("## Where the code is")[2]
    )
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    entries = {}
    for path in SOURCE.iterdir():
        file = path / "__init__.py" if path.is_dir() else path
        if file.suffix == ".py" and file.is_file() and not path.name.startswith("__"):
            words = ast.get_docstring(ast.parse(file.read_text())) or ""
            name = f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
            entries[name] = words.split("\n")[0].removesuffix(".")
    assert dict(rows) == entries


# What a function is not called: it does something, or gives something.
PARTICIPLES = {
    *("begun", "built", "chosen", "drawn", "found", "given", "gone", "heard", "held", "kept"),
    *("known", "lost", "made", "met", "said", "sent", "shown", "taken", "told", "written"),
}


def test_no_function_is_named_by_a_participle() -> None:
    names = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and "property" not in {ast.unparse(mark) for mark in node.decorator_list}
        and (
            node.name.strip("_") in PARTICIPLES
            or re.fullmatch(r"_?(?!seed$|embed$)[a-z]+ed", node.name)
        )
    ]
    assert not names


def test_a_class_name_stands_for_one_thing() -> None:
    """Methods repeat what their states and messages are called: each file is read by itself."""
    places: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                place = "methods" if room(path) == "methods" else str(path.relative_to(SOURCE))
                places.setdefault(node.name, set()).add(place)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by it, and refuses the second."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
