"""The named parts of an experiment: method, data, partition, model and noise.

A part is written as a name, or as a table of a name and options, and kept as the complete table.
"""

import ast
import dataclasses
import inspect
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from isthmus import ranges
from isthmus.about import About
from isthmus.data import NOISES, PARTITIONS, SOURCES
from isthmus.errors import IsthmusError, nearest, quote
from isthmus.methods import METHODS
from isthmus.models import MODELS
from isthmus.system.plugins import Registry

if TYPE_CHECKING:
    from isthmus.method import Method

Table = Mapping[str, Any]

COMPONENTS: dict[str, Registry] = {
    "method": METHODS,
    "data": SOURCES,
    "partition": PARTITIONS,
    "model": MODELS,
    "noise": NOISES,
}
OUTLINED = ("method", "model")  # parts whose files import torch

OWN = "own"  # the name of data, partition and model that came from Python; marks a method
AUTO = "auto"  # a second network that suits the data
LENET = 16  # pixels, the least that its two convolutions take


class Option(NamedTuple):
    """One option of a part."""

    type: Any
    default: Any


def read_outline(target: str) -> Any:
    """Return a method's class or a network's function as its file declares it, without torch.

    Only what settings need is read from the file: the options and `about` of a class, the arguments
    of a function. A class is documented by its file.
    """
    module, _, name = target.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    file = ast.parse(Path(spec.origin).read_bytes())
    node = next(each for each in file.body if getattr(each, "name", "") == name)
    if isinstance(node, ast.ClassDef):
        node.bases = []
        node.body = [
            each
            for each in node.body
            if isinstance(each, ast.AnnAssign | ast.Expr) or getattr(each, "name", "") == "about"
        ]
    elif isinstance(node, ast.FunctionDef):
        node.body, node.returns = node.body[:1], None
    known = {"About": About, "Literal": Literal, "dataclass": dataclasses.dataclass}
    names = {**vars(ranges), **known, "__name__": module}
    try:
        exec(compile(ast.Module([node], []), spec.origin, "exec"), names)
    except NameError as error:
        raise IsthmusError(
            f"{spec.origin}: {error}; types of options are those of isthmus.ranges, Literal, and "
            "Python's own"
        ) from None
    found = names[name]
    if inspect.isclass(found):
        found.__doc__ = ast.get_docstring(file)
    return found


@cache
def look_up(part: str, name: str) -> Any:
    """Return what a name stands for, as far as its options and its documentation are concerned."""
    registry = COMPONENTS[part]
    if part in OUTLINED and name in registry.targets:
        return registry.instantiate(name, read_outline(registry.targets[name]))
    return registry[name]


@cache
def read_options(part: str, name: str) -> Mapping[str, Option]:
    """Return the options of what a name stands for; none where it is not known.

    >>> list(read_options("method", "fedprox"))
    ['mu', 'tune', 'tune_lr']
    """
    if name not in COMPONENTS[part]:
        return {}
    owner = look_up(part, name)
    if inspect.isfunction(owner):
        hints = get_type_hints(owner, include_extras=True)
        arguments = inspect.signature(owner).parameters.values()
        return {
            argument.name: Option(hints[argument.name], argument.default)
            for argument in arguments
            if argument.kind is argument.KEYWORD_ONLY
        }
    kind: Any = owner if inspect.isclass(owner) else type(owner)
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: Option(hints[field.name], getattr(owner, field.name))
        for field in dataclasses.fields(kind)
    }


def list_options(part: str) -> dict[str, Mapping[str, Option]]:
    """Return the options of everything that a part may be called, by name."""
    return {name: read_options(part, name) for name in COMPONENTS[part]}


def describe_choices(part: str) -> list[dict[str, Any]]:
    """Describe all that a part may be called: name, one line, options with their defaults.

    >>> [entry["name"] for entry in describe_choices("partition")][:3]
    ['iid', 'pathological', 'dirichlet-classwise']
    """
    return [
        {
            "name": name,
            "summary": (inspect.getdoc(look_up(part, name)) or "").split("\n")[0],
            "options": {key: option.default for key, option in read_options(part, name).items()},
            **(_describe_about(look_up(part, name).about()) if part == "method" else {}),
        }
        for name in COMPONENTS[part]
    ]


def _describe_about(about: About) -> dict[str, Any]:
    return about._asdict() | {"calls": dict(about.calls), "discloses": about.discloses}


def describe_method(method: "Method") -> dict[str, Any]:
    """Return what an experiment records of a method from Python: its class and options."""
    options: dict[str, Any] = {}
    if dataclasses.is_dataclass(method):
        options = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    plain = {
        key: list(v) if isinstance(v, tuple) else v if isinstance(v, int | float | str) else str(v)
        for key, v in options.items()
    }
    return {"name": type(method).__name__, OWN: True, **plain}


def build(part: str, table: Table, *arguments: Any) -> Any:
    """Return the object that a complete part describes."""
    owner = COMPONENTS[part][table["name"]]
    chosen = {key: value for key, value in table.items() if key != "name"}
    if inspect.isclass(owner) or inspect.isfunction(owner):
        return owner(*arguments, **chosen)
    return dataclasses.replace(owner, **chosen)


def read_network(text: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the table of a second network that is written as a name and options.

    `auto` is about a sixth of LeNet-5 for images, and of `mlp` for anything else.

    >>> read_network("mlp hidden=8", (16,)), read_network("auto", (16,))
    ({'name': 'mlp', 'hidden': 8}, {'name': 'mlp', 'hidden': 11})
    """
    if text == AUTO:
        image = len(shape) == 3 and min(shape[1:]) >= LENET
        return read_network("lenet5_sixth" if image else "mlp hidden=11", shape)
    name, *given = text.split() or [text]
    try:
        chosen = tomllib.loads("\n".join(given))
    except (ValueError, RecursionError):
        raise IsthmusError(
            f"{quote(text)} is not a network; give a model and its options, for example "
            "'mlp hidden=8'"
        ) from None
    return complete("model", {"name": name, **chosen})


def complete(part: str, given: Table) -> dict[str, Any]:
    """Return a part with all its options, after checking those that are given."""
    name = given.get("name")
    if (name == OWN and part not in ("method", "noise")) or (part == "method" and given.get(OWN)):
        return dict(given)
    if not isinstance(name, str) or name not in COMPONENTS[part]:
        raise IsthmusError(
            f"no {part} is called {name!r}; {nearest(str(name), list(COMPONENTS[part]))}"
        )
    known = read_options(part, name)
    for option in given:
        if option != "name" and option not in known:
            hint = nearest(option, list(known)) if known else "it has none"
            raise IsthmusError(f"{part} {name} has no option {option!r}; {hint}")
    result = {"name": name}
    for option, (kind, default) in known.items():
        value = given.get(option, default)
        strict = isinstance(value, bool)  # or it would pass for 0 or 1
        try:
            result[option] = _build_check(kind).validate_python(value, strict=strict)
        except ValidationError as error:
            raise IsthmusError(explain_error(error, f"{part}.{option}", default)) from None
    return result


@cache  # as costly as all else in an experiment
def _build_check(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def merge(first: Table, second: Table) -> dict[str, Any]:
    """Return two tables of settings as one; where both have a key, the second wins.

    A part that changes its name loses its options, which belonged to the other name.

    >>> merge({"method": {"name": "fedprox", "mu": 1}}, {"method": "fedavg"})
    {'method': {'name': 'fedavg'}}
    """
    result = {key: to_table(value) if key in COMPONENTS else value for key, value in first.items()}
    for key, value in second.items():
        if key in COMPONENTS:
            old, new = result.get(key, {}), to_table(value)
            renamed = "name" in old and "name" in new and new["name"] != old["name"]
            result[key] = dict(new) if renamed else {**old, **new}
        else:
            result[key] = value
    return result


def restrict_preset(preset: Table, wanted: Table) -> dict[str, Any]:
    """Return a preset without the options that the chosen parts do not have."""
    result = dict(preset)
    for part in COMPONENTS:
        known = read_options(part, str(wanted[part].get("name")))
        result[part] = {k: v for k, v in preset.get(part, {}).items() if k in known}
    return result


def find_owner(option: str, settings: list[str], chosen: Mapping[str, str]) -> str:
    """Return the part that an option belongs to: `method` for `mu`.

    If several parts may have such an option, the one counts that has it as it is chosen.
    """
    owners = [part for part in COMPONENTS if option in read_options(part, chosen.get(part, ""))]
    if len(owners) == 1:
        return owners[0]
    every = {(part, name) for part in COMPONENTS for o in list_options(part).values() for name in o}
    owners = owners or sorted(part for part, name in every if name == option)
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise IsthmusError(
            f"{option!r} is an option of {' and of '.join(owners)}; write "
            f"{' or '.join(f'{owner}.{option}' for owner in owners)}"
        )
    known = [*settings, *sorted({name for _, name in every})]
    raise IsthmusError(f"no setting is called {option!r}; {nearest(option, known)}")


def explain_error(error: ValidationError, name: str, default: Any) -> str:
    """Return the first mistake as a sentence: what would be right, what was given, an example."""
    first = error.errors()[0]
    message = first["msg"].replace("Unable to parse input string as", "Input should be")
    rule = re.sub(r".* should |, (unable|got|exceeded) .*| after validation.*", "", message)
    return f"{name} must {rule}, not {quote(first['input'])}; for example {name}={default}"


def to_table(part: Any) -> Table:
    """Return the table of a part, which may be written as its name alone."""
    return part if isinstance(part, dict | Mapping) else {"name": part}  # dict: ten times faster
