"""The parts of an experiment that have names: method, data, partition, model and noise.

A part is written as a name, or as a table of a name and options; it is kept as the complete table.
"""

import dataclasses
import inspect
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from isthmus.data.label_noise import NOISES
from isthmus.data.partitions import PARTITIONS
from isthmus.data.sources import SOURCES
from isthmus.errors import IsthmusError, nearest, quote
from isthmus.method import About, Method
from isthmus.methods import METHODS
from isthmus.models import MODELS

Table = Mapping[str, Any]

PARTS: dict[str, Mapping[str, Any]] = {
    "method": METHODS,
    "data": SOURCES,
    "partition": PARTITIONS,
    "model": MODELS,
    "noise": NOISES,
}

OWN = "own"  # the name of data, partition and model that came from Python; marks a method
AUTO = "auto"  # a second network that suits the data
LENET = 16  # pixels, the least that its two convolutions take


class Option(NamedTuple):
    """One option of a part."""

    type: Any
    default: Any


@cache
def list_options(part: str) -> dict[str, dict[str, Option]]:
    """Lists what a part may be called, and the options of each."""
    return {name: _read_options(owner) for name, owner in PARTS[part].items()}


def _read_options(owner: Any) -> dict[str, Option]:
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


def describe_choices(part: str) -> list[dict[str, Any]]:
    """Describes all that a part may be called: name, one line, options with their defaults.

    >>> [entry["name"] for entry in describe_choices("partition")][:3]
    ['iid', 'pathological', 'dirichlet-classwise']
    """
    known = list_options(part)
    return [
        {
            "name": name,
            "summary": _summarize(owner),
            "options": {key: default for key, (_, default) in known[name].items()},
            **(_describe_about(owner.about()) if isinstance(owner, Method) else {}),
        }
        for name, owner in PARTS[part].items()
    ]


def _describe_about(about: About) -> dict[str, Any]:
    return about._asdict() | {"calls": dict(about.calls), "discloses": about.discloses}


def describe_method(method: Method) -> dict[str, Any]:
    """Names a method of one's own by its class, with its options as TOML has them."""
    options: dict[str, Any] = {}
    if dataclasses.is_dataclass(method):
        options = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    plain = {
        key: list(v) if isinstance(v, tuple) else v if isinstance(v, int | float | str) else str(v)
        for key, v in options.items()
    }
    return {"name": type(method).__name__, OWN: True, **plain}


def _summarize(owner: Any) -> str:
    # A method's file begins with the method and its paper; anything else describes itself.
    described = inspect.getmodule(type(owner)) if isinstance(owner, Method) else owner
    return (inspect.getdoc(described) or "").split("\n")[0]


def build(part: str, table: Table, *arguments: Any) -> Any:
    """Makes what a complete part describes."""
    owner = PARTS[part][table["name"]]
    chosen = {key: value for key, value in table.items() if key != "name"}
    if inspect.isclass(owner) or inspect.isfunction(owner):
        return owner(*arguments, **chosen)
    return dataclasses.replace(owner, **chosen)


def read_network(text: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Reads a second network, written as a name and options, for inputs of some shape.

    `auto` is about a sixth of LeNet-5 for images, and of `mlp` for all else.

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
            f"{quote(text)} names no network; expected a model and options; for example "
            "'mlp hidden=8'"
        ) from None
    return complete("model", {"name": name, **chosen})


def complete(part: str, given: Table) -> dict[str, Any]:
    """Checks a part's name and options, and fills in the options that were left out."""
    name, known = given.get("name"), list_options(part)
    if (name == OWN and part not in ("method", "noise")) or (part == "method" and given.get(OWN)):
        return dict(given)
    if not isinstance(name, str) or name not in known:
        raise IsthmusError(f"no {part} is called {name!r}; {nearest(str(name), list(known))}")
    for option in given:
        if option != "name" and option not in known[name]:
            hint = nearest(option, list(known[name])) if known[name] else "it has none"
            raise IsthmusError(f"{part} {name} has no option {option!r}; {hint}")
    result = {"name": name}
    for option, (kind, default) in known[name].items():
        try:
            value = given.get(option, default)
            strict = isinstance(value, bool)  # or it would pass for 0 or 1
            result[option] = _build_check(kind).validate_python(value, strict=strict)
        except ValidationError as error:
            raise IsthmusError(explain_error(error, f"{part}.{option}", default)) from None
    return result


@cache  # as costly as all else in an experiment
def _build_check(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def merge(first: Table, second: Table) -> dict[str, Any]:
    """Joins two tables of settings; where both set a key, the second wins.

    A part that changes its name loses the options it had: they were another's.

    >>> merge({"method": {"name": "fedprox", "mu": 1}}, {"method": "fedavg"})
    {'method': {'name': 'fedavg'}}
    """
    result = {key: to_table(value) if key in PARTS else value for key, value in first.items()}
    for key, value in second.items():
        if key in PARTS:
            old, new = result.get(key, {}), to_table(value)
            renamed = "name" in old and "name" in new and new["name"] != old["name"]
            result[key] = dict(new) if renamed else {**old, **new}
        else:
            result[key] = value
    return result


def restrict_preset(preset: Table, wanted: Table) -> dict[str, Any]:
    """Leaves out of a preset the options that the chosen parts do not have."""
    result = dict(preset)
    for part in PARTS:
        known = list_options(part).get(str(wanted[part].get("name")), {})
        result[part] = {k: v for k, v in preset.get(part, {}).items() if k in known}
    return result


def find_owner(option: str, settings: list[str], chosen: Mapping[str, str]) -> str:
    """Finds the part of an option that was named without it: `mu` is `method.mu`.

    Where several parts might have it, it is that of the one that has it as it is chosen.
    """
    every = {(part, name) for part in PARTS for o in list_options(part).values() for name in o}
    here = [part for part in PARTS if option in list_options(part).get(chosen.get(part, ""), {})]
    owners = here or sorted(part for part, name in every if name == option)
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise IsthmusError(
            f"{option!r} is an option of {' and of '.join(owners)}; expected one of them; write "
            f"{owners[0]}.{option}"
        )
    known = [*settings, *sorted({name for _, name in every})]
    raise IsthmusError(f"no setting is called {option!r}; {nearest(option, known)}")


def explain_error(error: ValidationError, name: str, default: Any) -> str:
    """Says of the first thing that is wrong what was given, what was expected, what would do."""
    first = error.errors()[0]
    expected = first["msg"].removeprefix("Input should be ").split(", unable")[0]
    expected = f"{expected[0].lower()}{expected[1:]}"
    return f"{name}={quote(first['input'])}; expected {expected}; for example {name}={default}"


def to_table(part: Any) -> Table:
    """Makes a table of a part that is written as its name alone."""
    return part if isinstance(part, Mapping) else {"name": part}
