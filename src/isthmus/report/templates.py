r"""Jinja2 for pages, Markdown and LaTeX: whatever a template prints is escaped.

The suffix of a template decides how. What it is to print as it is comes as `Markup`.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from isthmus.report.tables import formats

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDERS = tuple(Path(__file__).parent / room / "templates" for room in ("page", "tables"))
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "†": r"$^{\dag}$",
        "‡": r"$^{\ddag}$",
        "≈": r"$^{\approx}$",
        "±": r"$\pm$",
        "·": r"$\cdot$",
        "−": "$-$",
        "–": "--",
        "<": "$<$",
        ">": "$>$",
        "\n": " ",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


def render(*templates: str, folder: Path | None = None, **values: Any) -> str:
    """Fill in the first template there is: a page (.html), Markdown (.md), LaTeX (.tex) or text.

    Those of `folder` come before those of reports.
    """
    environment = _environment(Path(templates[0]).suffix, folder)
    return environment.select_template(templates).render(values)


def render_paragraph(template: str, **values: Any) -> str:
    """Fill in a text whose lines are one paragraph."""
    return " ".join(render(template, **values).split())


def escape_markdown(text: str) -> str:
    r"""Escape text so that Markdown shows it as it is.

    >>> escape_markdown("a|b <c>")
    'a\\|b &lt;c>'
    """
    spelled = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", spelled)  # other than these, it begins no tag


def escape_latex(text: str) -> str:
    r"""Escape text so that LaTeX prints it.

    >>> print(escape_latex("lr_decay=50 %, 3†"))
    lr\_decay=50 \%, 3$^{\dag}$
    """
    return text.translate(LATEX)


@cache
def _environment(suffix: str, folder: Path | None) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    shared: dict[str, Any] = {
        "loader": FileSystemLoader(FOLDERS if folder is None else (folder, *FOLDERS)),
        "undefined": StrictUndefined,
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
    }
    if suffix == ".html":
        return _add_formats(Environment(autoescape=True, **shared))
    escapes: dict[str, Callable[[str], str]]
    escapes = {".md": escape_markdown, ".tex": escape_latex, ".txt": str}
    escape = escapes[suffix]
    if suffix == ".tex":  # which has braces of its own
        shared |= {"variable_start_string": "<<", "variable_end_string": ">>"}
        shared |= {"block_start_string": "<%", "block_end_string": "%>"}

    def finalize(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape(str(value)))

    # Jinja's own escape is for HTML; to it, what was finalized is markup.
    return _add_formats(Environment(autoescape=True, finalize=finalize, **shared))


def _add_formats(environment: "Environment") -> "Environment":
    """Let templates print numbers and names as tables do."""
    environment.globals |= {k: v for k, v in vars(formats).items() if not k.startswith("_")}
    return environment
