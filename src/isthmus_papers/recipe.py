"""Recipes: each published table or figure, with the experiment behind each of its numbers.

A recipe is one TOML file in `recipes/PAPER/`. What all tables of a paper have in common is in its
`paper.toml`. docs/reproduction.md says how the files are written.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from isthmus.errors import IsthmusError, nearest
from isthmus.experiment.registry import Table, merge
from isthmus.experiment.settings import Experiment
from isthmus_papers.number import Number

Preset = Literal["paper", "release"]
NUMBER = TypeAdapter(Number)  # checks one


@dataclass(frozen=True, eq=False)  # each is one place of one table
class TableCell:
    """One number of a table, or one run that has none: behind a figure, or beside a table."""

    paper: str
    table: str  # "1", "E", "figure 3"
    column: str
    keys: Mapping[str, Any]  # dataset, setting and clients, as the paper says them
    metric: str
    method: str  # by its name here
    label: str  # by the paper's
    mean: float | None  # None: no number is printed
    std: float | None
    settings: Mapping[str, Any]  # of the experiment, as the paper has them
    release: Mapping[str, Any] | None  # as the released code has them; None: none is known
    seeds: tuple[int, ...]
    number: Number
    explained_by: Preset  # whose settings the printed number follows
    reason: str | None  # why no run can meet it; None: one can

    @property
    def is_trial(self) -> bool:
        """Whether settings are chosen by it."""
        return self.number.data == "validation"

    def experiment(self, seed: int, preset: Preset = "paper") -> Experiment:
        """Complete the experiment of one seed; equal ones are one run, whatever the table."""
        settings = self.settings if preset == "paper" else self.release
        if settings is None:
            raise IsthmusError(
                f"{self.paper}, {self.table}, {self.column}, {self.label} has no preset={preset}; "
                "no released settings are known, so leave the preset out"
            )
        return Experiment(**settings, seed=seed)


@dataclass(frozen=True)
class Paper:
    """What is said once of all tables and figures of a paper."""

    name: str
    title: str  # authors, title, place, year
    note: str  # what a reader has to know
    story: str  # what came out, as a template: isthmus_papers.page fills in the numbers


@dataclass(frozen=True)
class Recipe:
    """A published table or figure."""

    name: str  # "superfed/table1"
    paper: Paper
    title: str
    note: str  # what a reader has to know besides the paper's
    columns: tuple[str, ...]
    cells: tuple[TableCell, ...]  # with a printed number
    runs: tuple[TableCell, ...]  # without: the curves of a figure; methods beside those of a table
    figures: tuple[str, ...]  # drawn of each column, by the names of isthmus figure

    def choose(
        self, columns: Collection[str] = (), methods: Collection[str] = ()
    ) -> list[TableCell]:
        """List cells and runs of some columns, or methods by either name; none named: all.

        >>> [cell.mean for cell in find_recipe("superfed/table1").choose(["MNIST, 50"], ["apfl"])]
        [99.4]
        """
        return choose_cells([self], columns, methods)[self.name]


class Layer(BaseModel):
    """Settings, those that the release changes, and what is said of numbers: merged in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: dict[str, Any] = {}
    release: dict[str, Any] | Literal[False] = {}  # False: no released settings are known
    number: dict[str, Any] = {}


class MethodLayer(Layer):
    """A method of a paper."""

    label: str = ""
    metrics: list[str] = []  # those it has, if not all
    columns: list[str] = []  # of a run beside the table: those it is for, if not all
    like: str = ""  # of such a run: the method that it is, but for what is said of it


NO_METHOD = MethodLayer()


class ColumnLayer(Layer):
    """A column of a table; `vary` makes one for each combination of its values."""

    name: str = ""
    keys: dict[str, Any] = {}  # dataset, setting, clients
    vary: dict[str, list[Any]] = {}
    methods: dict[str, Layer] = {}
    explained_by: Preset | None = None  # None: as the table


class Exclusion(BaseModel):
    """Why some cells cannot be met: those of the named methods, columns and metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    methods: list[str] = []  # none: all
    columns: list[str] = []
    metrics: list[str] = []

    def covers(self, method: str, column: str, metric: str) -> bool:
        """Whether a cell is one of these."""
        named = ((self.methods, method), (self.columns, column), (self.metrics, metric))
        return all(not names or name in names for names, name in named)


class RecipeFile(Layer):
    """What a file states: of a table, or of all tables of a paper."""

    paper: str = ""
    table: str = ""
    title: str = ""
    note: str = ""
    story: str = ""
    explained_by: Preset = "paper"
    seeds: list[int] = []
    columns: list[str | ColumnLayer] = []
    metrics: list[str] = []
    runs: list[str] = []  # methods without a printed number
    tried: list[dict[str, Any]] = []  # settings: with each of them, every one of `runs` is run
    numbers: dict[str, dict[str, Any]] = {}  # by metric
    methods: dict[str, MethodLayer] = {}
    published: dict[str, dict[str, str]] = {}  # by metric and method: "95.69 ± 2.39 | 89.78 ± 11.3"
    excused: list[Exclusion] = []
    quoted: list[dict[str, Any]] = []  # what the text around it says; not shown
    figures: list[str] = []


@cache
def read_recipes() -> dict[str, Recipe]:
    """Read all recipes, by name.

    >>> list(read_recipes())[:2]
    ['check/digits', 'fedsimsup/figure2']
    """
    found = {}
    folders = (files("isthmus_papers") / "recipes").iterdir()
    for folder in sorted(folders, key=lambda folder: folder.name):
        recipe_files = {
            file.name.removesuffix(".toml"): read_recipe_file(file.read_text("utf-8"), file.name)
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
        }
        paper = recipe_files.pop("paper")
        for name, sheet in recipe_files.items():
            found[f"{folder.name}/{name}"] = build_recipe(f"{folder.name}/{name}", paper, sheet)
    return found


def find_recipe(name: str) -> Recipe:
    """Find a recipe by its name.

    >>> find_recipe("superfed/table1").cells[0].mean
    95.69
    """
    known = read_recipes()
    if name not in known:
        raise IsthmusError(f"no recipe is called {name!r}; {nearest(name, list(known))}")
    return known[name]


def find_recipes(names: Sequence[str]) -> list[Recipe]:
    """Find recipes by their names, or all of a paper by its; none named: all.

    >>> [recipe.name for recipe in find_recipes(["superfed/table1", "superfed-v1"])][:2]
    ['superfed/table1', 'superfed-v1/figure2']
    """
    known = read_recipes()
    found: dict[str, Recipe] = {}
    for name in names or known:
        of_paper = {key: each for key, each in known.items() if key.startswith(f"{name}/")}
        found |= of_paper or {name: find_recipe(name)}
    return list(found.values())


def choose_cells(
    recipes: Sequence[Recipe], columns: Collection[str] = (), methods: Collection[str] = ()
) -> dict[str, list[TableCell]]:
    """List cells and runs by recipe, as `Recipe.choose` does; a name need not be known to all.

    >>> cells = choose_cells(find_recipes(["floco"]), methods=["superfed-mm"])
    >>> [name for name, chosen in cells.items() if chosen]
    ['floco/tableE']
    """
    every = {recipe.name: (*recipe.cells, *recipe.runs) for recipe in recipes}
    names = dict.fromkeys(cell.method for cells in every.values() for cell in cells)
    labels = {cell.label for cells in every.values() for cell in cells}
    where = recipes[0].name if len(recipes) == 1 else f"{len(recipes)} tables and figures"
    _check_names(where, "column", columns, {name: None for r in recipes for name in r.columns})
    _check_names(where, "method", [name for name in methods if name not in labels], names)
    chosen = {
        name: [
            cell
            for cell in cells
            if (not columns or cell.column in columns)
            and (not methods or cell.method in methods or cell.label in methods)
        ]
        for name, cells in every.items()
    }
    if not any(chosen.values()):
        wanted = ", ".join([*columns, *methods])
        raise IsthmusError(
            f"no cell of {wanted} together in {where}; isthmus reproduce RECIPE lists columns and "
            "methods"
        )
    return chosen


def list_cells() -> list[TableCell]:
    """List every published number.

    >>> len(list_cells())
    1024
    """
    return [cell for recipe in read_recipes().values() for cell in recipe.cells]


def read_recipe_file(text: str, name: str) -> RecipeFile:
    """Read what a file states, and checks its form."""
    try:
        return RecipeFile(**tomllib.loads(text))
    except (ValidationError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())
        raise IsthmusError(f"{name} is not a valid recipe: {reason}") from None


def build_recipe(name: str, paper: RecipeFile, sheet: RecipeFile) -> Recipe:
    """Make the cells of a table out of what its file and its paper's state."""
    known = {column.name: column for column in _expand(paper.columns)}
    references = [column for column in sheet.columns if isinstance(column, str)]
    _check_names(name, "column", references, known)
    columns = _expand(known[c] if isinstance(c, str) else c for c in sheet.columns)
    methods = paper.methods | sheet.methods
    rows = [method for lines in sheet.published.values() for method in lines]
    _check_names(name, "method", [*sheet.runs, *rows], methods)
    _check_names(name, "metric", sheet.published, sheet.metrics)
    for exclusion in sheet.excused:
        _check_names(name, "method", exclusion.methods, methods)
        _check_names(name, "column", exclusion.columns, [column.name for column in columns])
        _check_names(name, "metric", exclusion.metrics, sheet.metrics)
    for method in sheet.runs:
        _check_names(name, "method", filter(None, [methods[method].like]), paper.methods)
        _check_names(name, "column", methods[method].columns, [column.name for column in columns])
    cells, runs = [], []
    for metric in sheet.metrics:
        for method, line in sheet.published.get(metric, {}).items():
            for column, figures in zip(columns, _read_row(line, len(columns)), strict=True):
                if figures is not None:
                    cells.append(_build_cell(paper, sheet, column, method, metric, figures))
        for method in sheet.runs:
            if metric in (methods[method].metrics or sheet.metrics):
                runs += [
                    _build_cell(paper, sheet, column, method, metric, (None, None), trial)
                    for column in columns
                    if column.name in (methods[method].columns or [column.name])
                    for trial in sheet.tried or [{}]
                ]
    return Recipe(
        name=name,
        paper=Paper(paper.paper, paper.title, _fold(paper.note), paper.story),
        title=sheet.title,
        note=_fold(sheet.note),
        columns=tuple(column.name for column in columns),
        cells=tuple(cells),
        runs=tuple(runs),
        figures=tuple(sheet.figures),
    )


def _fold(text: str) -> str:
    return " ".join(text.split())


def _check_names(where: str, kind: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise IsthmusError(f"no {kind} {name!r} in {where}; {nearest(name, list(known))}")


def _build_cell(
    paper: RecipeFile,
    sheet: RecipeFile,
    column: ColumnLayer,
    method: str,
    metric: str,
    figures: tuple[float | None, float | None],
    trial: Mapping[str, Any] = MappingProxyType({}),
) -> TableCell:
    papers = paper.methods.get(method, NO_METHOD)
    special = papers if papers.like else sheet.methods.get(method, NO_METHOD)
    source = special.like or method
    general = paper.methods.get(source, NO_METHOD)
    here = [column, column.methods.get(source, NO_METHOD)]
    # What the table says comes after a column of the paper, and before its own.
    own = [*here, sheet, special] if column.name in sheet.columns else [sheet, special, *here]
    layers: list[Layer] = [paper, general, *own]
    tried = [f"{key}={value}" for key, value in trial.items()]
    ours: dict[str, Any] = {"preset": "paper", "method": {"name": source}}
    settings = _merge(ours, *(layer.settings for layer in layers), trial)
    changes = [layer.release for layer in layers if layer.release is not False]
    is_released = len(changes) == len(layers) and any(changes)
    release = _merge(settings, *changes, {"preset": "release"}) if is_released else None
    number: dict[str, Any] = {}
    for layer in layers:
        number |= layer.number
        if isinstance(layer, RecipeFile):
            number |= layer.numbers.get(metric, {})
    if number.get("model") == "shared":
        number["selection"] = "none"
    if number.get("data") == "server":
        number["summary"] = "mean"  # one model on one test set: nothing is summed up
    excuses = [e.reason for e in sheet.excused if e.covers(method, column.name, metric)]
    return TableCell(
        paper=paper.paper,
        table=sheet.table,
        column=column.name,
        keys=column.keys,
        metric=metric,
        method=method if special.columns else settings["method"]["name"],
        label=", ".join([special.label or general.label, *tried]),
        mean=figures[0],
        std=figures[1],
        settings=settings,
        release=release,
        seeds=tuple(sheet.seeds or paper.seeds),
        number=NUMBER.validate_python({"metric": metric} | number),
        explained_by=column.explained_by or sheet.explained_by,
        reason=excuses[0] if excuses else None,
    )


def _merge(*tables: Table) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for table in filter(None, tables):
        result = merge(result, table)
    return result


def _expand(columns: Iterable[str | ColumnLayer]) -> list[ColumnLayer]:
    return [
        ColumnLayer(**_fill(column.model_dump(exclude={"vary"}), dict(chosen)))
        for column in columns
        if isinstance(column, ColumnLayer)
        for chosen in product(*([(key, v) for v in vs] for key, vs in column.vary.items()))
    ]


def _fill(value: Any, chosen: Mapping[str, Any]) -> Any:
    """Put the chosen values where `{name}` stands, as they are if nothing else does."""
    if isinstance(value, dict):
        return {key: _fill(inner, chosen) for key, inner in value.items()}
    if isinstance(value, str) and "{" in value:
        alone = value.removeprefix("{").removesuffix("}")
        return chosen[alone] if alone in chosen else value.format(**chosen)
    return value


def _read_row(text: str, columns: int) -> list[tuple[float, float | None] | None]:
    cells = [cell.strip() for cell in text.split("|")]
    if len(cells) != columns:
        raise IsthmusError(
            f"{text!r} has {len(cells)} cells, and the table {columns} columns; correct the recipe"
        )
    result: list[tuple[float, float | None] | None] = []
    for cell in cells:
        mean, _, std = cell.partition("±")
        result.append(None if cell == "-" else (float(mean), float(std) if std else None))
    return result
