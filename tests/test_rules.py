"""Design rules, kept by reading the source."""

import ast
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import isthmus
from isthmus.method import Method
from isthmus.methods import METHODS

CORE = Path(isthmus.__file__).parent
SOURCE = CORE.parent
MODULES = sorted(SOURCE.glob("isthmus*/**/*.py"))
METHOD_FILES = sorted({Path(inspect.getfile(type(method))) for method in METHODS.values()})

# The rooms of the house, from the ground up: a room imports from lower floors only; rooms on one
# floor do not know each other. A module belongs to the longest name here that it begins with.
RECORD = {f"isthmus.run.{name}" for name in ("cells", "columns", "record", "schema")}
FLOORS: list[set[str]] = [
    {"isthmus.errors"},
    {f"isthmus.{name}" for name in ("about", "ranges", "selection", "shelf", "streams", "system")},
    {"isthmus.tree"},
    {"isthmus.formulas", "isthmus.metrics"},
    {"isthmus.data"},
    {"isthmus.models"},
    {"isthmus.task"},
    {"isthmus.client"},
    {"isthmus.method"},
    {"isthmus.context"},
    {"isthmus.cohort"},
    {"isthmus.evaluation"},
    {"isthmus.engines", "isthmus.methods"},
    {"isthmus.experiment"},
    {"isthmus.run.cells", "isthmus.run.schema"},
    {"isthmus.run.columns"},
    {"isthmus.run.record"},
    {"isthmus.run", "isthmus.tracking"},
    {"isthmus.report"},
    {"isthmus.batch"},
    {"isthmus.cli"},
    {"isthmus.__main__", "isthmus"},
    {"isthmus_sites", "isthmus_papers"},
]
ROOMS = set().union(*FLOORS)
# What sites and papers, as any other package, may import: of these the names without underscore.
PUBLIC = {
    *(f"isthmus.{name}" for name in ("client", "cohort", "context", "errors", "evaluation")),
    *(f"isthmus.{name}" for name in ("method", "methods", "metrics", "selection", "shelf", "tree")),
    *(f"isthmus.{name}" for name in ("batch", "data", "experiment", "report", "run", "system")),
    *(f"isthmus.cli.{name}" for name in ("messages", "options", "progress")),
    *(f"isthmus.engines.{name}" for name in ("base", "loop")),
}
# Where less is meant than the floors allow.
ONLY: dict[str, set[str]] = {
    "isthmus.report": {
        *(f"isthmus.{name}" for name in ("errors", "experiment", "metrics", "selection", "system")),
        *RECORD,
    },
    "isthmus.methods": {
        f"isthmus.{name}"
        for name in (
            *("client", "cohort", "errors", "formulas", "method", "models", "ranges"),
            *("streams", "system", "task", "tree"),
        )
    },
}
TRACKERS = ("mlflow", "tensorboard", "torch.utils.tensorboard")
SHUT_OUT = ("cryptography", "flwr", "nvflare", "pickle", "ray", *TRACKERS)
NOT_EVERYWHERE = {
    "torch": {"isthmus.experiment", "isthmus.report", "isthmus.system"},
    **dict.fromkeys(SHUT_OUT, ROOMS),
}
# Where they are meant to be.
PLACES = {
    # between the processes of one run; and an unpickler that knows arrays of bytes alone
    "pickle": ["isthmus.engines.messages", "isthmus.data.named.cifar"],
    "ray": ["isthmus.engines.ray"],
    "nvflare": ["isthmus_sites.flare"],
    "cryptography": ["isthmus_sites.flare"],
    **{name: ["isthmus.tracking"] for name in TRACKERS},
}


def name_module(path: Path) -> str:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return name.removesuffix(".__init__")


NAMES = {name_module(path) for path in MODULES}


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
            for name in node.names:
                inside = f"{node.module}.{name.name}"
                found.add(inside if inside in NAMES else node.module)
    return found


def lies_in(name: str, place: str) -> bool:
    return f"{name}.".startswith(f"{place}.")


def room(name: str) -> str:
    return max((each for each in ROOMS if lies_in(name, each)), key=len)


@pytest.mark.parametrize("path", MODULES, ids=map(name_module, MODULES))
def test_modules_import_only_what_lies_below_them(path: Path) -> None:
    name = name_module(path)
    here = room(name)
    floor = next(number for number, rooms in enumerate(FLOORS) if here in rooms)
    below = set().union(*FLOORS[:floor]) & ONLY.get(here, ROOMS)
    inside = {room(each) for each in imports(path) if each in NAMES and each != "isthmus"}
    assert inside <= below | {here}
    for outside, rooms in NOT_EVERYWHERE.items():
        there = any(lies_in(name, place) for place in PLACES.get(outside, ()))
        if here in rooms and not there:
            assert not any(lies_in(each, outside) for each in imports(path))


@pytest.mark.parametrize("path", [p for p in MODULES if CORE not in p.parents], ids=name_module)
def test_sites_and_papers_use_public_names_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and lies_in(node.module or "", "isthmus"):
            for name in [each.name for each in node.names]:
                inside = f"{node.module}.{name}"
                home = inside if inside in NAMES else str(node.module)
                assert home == "isthmus" or any(lies_in(home, place) for place in PUBLIC)
                assert not name.startswith("_")


# Lines of code that a room may have: no blanks, comments, docstrings, imports. A number that rises
# comes with a commit that says why; one that can fall is lowered with what lowers it.
BUDGET = {
    "contract": 908,
    "isthmus/batch": 627,
    "isthmus/cli": 1439,
    "isthmus/data": 3655,
    "isthmus/engines": 1883,
    "isthmus/experiment": 419,
    "isthmus/formulas": 92,
    "isthmus/methods": 1679,
    "isthmus/metrics": 262,
    "isthmus/models": 1444,
    "isthmus/report": 3495,
    "isthmus/run": 2505,
    "isthmus/system": 182,
    "isthmus/tracking": 138,
    "isthmus_papers": 1403,
    "isthmus_sites": 3959,
}


def count_code(text: str) -> int:
    """Lines of code of a module."""
    words: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        said = isinstance(value, ast.Constant) and type(value.value) is str
        if said or isinstance(node, ast.Import | ast.ImportFrom):
            words.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line.strip() for line in text.splitlines()]
    return sum(
        bool(line) and not line.startswith("#") and number not in words
        for number, line in enumerate(lines, 1)
    )


def find_budget(path: Path) -> str:
    first, *rest = path.relative_to(SOURCE).parts
    if first != "isthmus":
        return first
    return "contract" if len(rest) == 1 else f"isthmus/{rest[0]}"


def test_words_and_imports_are_no_code() -> None:
    text = '"""Words."""\n\nimport ast\n\nx = 1  # why\n# more\ny = """\na\n"""\n'
    assert count_code(text) == 4


def test_a_room_has_no_more_code_than_its_budget() -> None:
    lines = dict.fromkeys(BUDGET, 0)
    for path in MODULES:
        lines[find_budget(path)] += count_code(path.read_text())
    assert {room: count for room, count in lines.items() if count > BUDGET[room]} == {}


def test_no_method_imports_another() -> None:
    """Methods of one family may share what else is in their folder."""
    names = set(map(name_module, METHOD_FILES))
    for path in METHOD_FILES:
        assert not imports(path) & names


@pytest.mark.parametrize("path", MODULES, ids=map(name_module, MODULES))
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
        *("isthmus.batch.comparison", "isthmus.batch.named_runs", "isthmus_papers.cli"),
        *("isthmus_papers.conduct", "isthmus_papers.drawing", "isthmus_papers.page"),
        *("isthmus", "isthmus.cli.app", "isthmus.experiment.settings", "isthmus.report.page"),
        "isthmus_sites.cli.serve",
        *("isthmus_sites.folders", "isthmus_sites.protocol"),
        *("isthmus_sites.status", "isthmus_sites.views"),
        *("isthmus_sites.flare.supervisor", "isthmus_sites.flare.keeper"),
    )
    code = f"import {', '.join(modules)}, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_method_has_its_page() -> None:
    pages = SOURCE.parent / "docs" / "methods"
    for path in METHOD_FILES:
        assert (pages / f"{path.stem}.md").is_file()


def test_the_contract_has_fourteen_members() -> None:
    members = [name for name in vars(Method) if not name.startswith("_")]
    assert len(members) <= 14


def test_the_map_of_the_code_is_the_tree() -> None:
    """One line for each room and module, in its own words."""
    text = (SOURCE.parent / "docs" / "index.md").read_text().partition("## Where the code is")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    entries = {}
    for path in CORE.iterdir():
        file = path / "__init__.py" if path.is_dir() else path
        if file.suffix == ".py" and file.is_file() and not path.name.startswith("__"):
            words = ast.get_docstring(ast.parse(file.read_text())) or ""
            name = f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
            entries[name] = words.split("\n")[0].removesuffix(".")
    assert dict(rows) == entries


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by it, and refuses the second."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
