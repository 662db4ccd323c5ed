"""Names stand for code that is loaded when it is needed, of this package or of another one."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import isthmus
from isthmus import Experiment
from isthmus.data import NOISES, PARTITIONS, SOURCES
from isthmus.experiment import registry
from isthmus.methods import METHODS
from isthmus.models import MODELS

PACKAGE = '''
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from isthmus.data.named.digits import Digits
from isthmus.engines.loop import Loop
from isthmus.methods.fedavg import FedAvg
from isthmus.tracking.callback import Tracker


@dataclass(frozen=True)
class Theirs(FedAvg):
    """A method of another package."""

    strength: float = 0.5


@dataclass(frozen=True)
class TheirDigits(Digits):
    """Data of another package."""

    clients: ClassVar[int] = 4


@contextmanager
def write_lines(run, experiment):
    with (run / "their.txt").open("w") as file:
        yield lambda done: file.write(f"round {done.cost.round}\\n")


TRACKER = Tracker(write_lines, needs=())


def greet(name: str = "world") -> None:
    """Greet somebody."""
    print(f"hello {name}")
'''
ENTRY_POINTS = """
[isthmus.methods]
theirs = their_package:Theirs
broken = their_package:Nothing
fedavg = their_package:Theirs

[isthmus.data]
their-digits = their_package:TheirDigits

[isthmus.engines]
their-engine = their_package:Loop

[isthmus.trackers]
their-tracker = their_package:TRACKER

[isthmus.commands]
greet = their_package:greet
broken = their_package:nothing
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """A Python beside which another package is installed."""
    installed = tmp_path / "site"
    described = installed / "their_package-1.0.dist-info"
    described.mkdir(parents=True)
    (installed / "their_package.py").write_text(PACKAGE)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n"
    )
    (described / "entry_points.txt").write_text(ENTRY_POINTS)
    source = Path(isthmus.__file__).parents[1]
    path = os.pathsep.join([str(source), str(installed)])

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_parts_of_another_package_are_named_as_those_of_this_one(
    python: Run, tmp_path: Path
) -> None:
    named = ["--method", "theirs", "--data", "their-digits", "--set", "engine=their-engine"]
    small = ["--rounds", "1", "--set", "strength=0.25", "--set", "clients_per_round=2"]
    small += ["--track", "their-tracker"]
    done = python("-m", "isthmus", "run", *named, *small, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "their.txt").read_text() == "round 1\n"
    shown = python("-m", "isthmus", "show", "out", "--json")
    for text in ('"method.name": "theirs"', '"method.strength": 0.25', '"clients": 4'):
        assert text in shown.stdout


def test_another_package_takes_no_name_of_this_one(python: Run) -> None:
    done = python("-c", "from isthmus.methods import METHODS; print(METHODS['fedavg'])")
    assert done.stdout == "FedAvg(tune=0, tune_lr=0.01)\n"


def test_a_broken_package_is_named_and_the_rest_works(python: Run) -> None:
    done = python("-m", "isthmus", "greet", "--name", "you")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello you\n", "")
    done = python("-m", "isthmus", "--help")
    assert (done.returncode, "greet" in done.stdout) == (0, True)
    assert done.stderr.startswith("note: broken of package their-package cannot be loaded")
    done = python("-m", "isthmus", "run", "--method", "broken")
    assert done.returncode == 2
    assert "isthmus: broken of package their-package" in done.stderr


def test_experiments_are_read_without_torch() -> None:
    code = """
import sys
from isthmus import Experiment
for part, names in {0}.items():
    for name in names:
        Experiment(**{{part: name}})
from isthmus.experiment.registry import COMPONENTS, describe_choices
for part in COMPONENTS:
    describe_choices(part)
print("torch" in sys.modules)
"""
    parts = {part: list(registry.COMPONENTS[part]) for part in registry.COMPONENTS}
    code = code.format(parts)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_s_outline_is_what_its_class_says(name: str) -> None:
    """Options and facts are read from the file, without running it."""
    method = METHODS[name]
    assert (
        registry.describe_method(method).items()
        >= {
            key: value
            for key, value in Experiment(method=name).method.items()
            if key != "name" and not isinstance(value, tuple)
        }.items()
    )
    outline = registry.look_up("method", name)
    assert inspect.signature(type(outline)) == inspect.signature(type(method))
    assert outline.about() == method.about()
    assert inspect.getdoc(outline) == inspect.getdoc(inspect.getmodule(type(method)))


@pytest.mark.parametrize("name", MODELS)
def test_a_network_s_outline_is_what_its_function_says(name: str) -> None:
    outline, network = registry.look_up("model", name), MODELS[name]
    assert outline.__doc__ == network.__doc__
    arguments = [inspect.signature(each).parameters for each in (outline, network)]
    assert arguments[0] == arguments[1]


@pytest.mark.parametrize("part", [SOURCES, PARTITIONS, NOISES], ids=lambda part: part.group)
def test_every_name_stands_for_something(part: registry.Registry) -> None:
    assert all(inspect.isclass(kind) for kind in part.values())
