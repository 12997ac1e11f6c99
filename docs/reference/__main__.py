"""Write the reference of the command line, Python, settings and metrics: ``python -m docs.reference``."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import griffe
import griffe2md
import typer
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings
from typer.cli import get_docs_for_click

from onager.cli.app import app
from onager.executor.settings import ExecutorSettings
from onager.metric import Whose
from onager.scheduler.metrics.catalog import SECTIONS
from onager.scheduler.settings import SchedulerSettings

HERE: Final = Path(__file__).parent
NOTE: Final = "<!-- Generated from the code by `make reference`; do not change it here. -->\n\n"
OBJECTS: Final = {
    "onager.client": (
        "connect",
        "OnagerClient",
        "JobHandle",
        "Script",
        "Step",
        "AuditEntry",
        "CatalogEntry",
        "JobProgress",
        "StageProgress",
        "Latency",
        "TimeShare",
        "View",
    ),
    "onager.errors": ("OnagerError", "JobFailedError", "JobCancelledError", "SchedulerUnreachableError"),
    "onager.protocol.security": ("ClientSecurity",),
}
_BASE_LINK: Final = re.compile(r"<code>\[(\w+)\]\(#[\w.]+\)</code>")
"""A base class, linked to an anchor that the page does not have."""
SETTINGS: Final[tuple[type[BaseSettings], ...]] = (SchedulerSettings, ExecutorSettings)


def command_line() -> str:
    """Return every command with its options."""
    command: Any = typer.main.get_command(app)
    text: str = get_docs_for_click(obj=command, ctx=typer.Context(command), name="onager")
    return NOTE + text.strip() + "\n"


def python() -> str:
    """Return what users import."""
    config: Any = {
        "docstring_style": "sphinx",
        "heading_level": 2,
        "show_object_full_path": False,
        "show_root_full_path": False,
        "show_root_members_full_path": False,
        "show_signature_annotations": True,
        "members_order": "source",
        "inherited_members": False,
        "summary": False,
    }
    parts = []
    for module, names in OBJECTS.items():
        loaded: Any = _loaded(module)
        for name in names:
            found = loaded[name].final_target if loaded[name].is_alias else loaded[name]
            page = griffe2md.render_object_docs(found, config).strip()
            parts.append(_BASE_LINK.sub(r"`\1`", page))
    return NOTE + "# Python\n\nEverything here is imported as `onager.NAME`.\n\n" + "\n\n".join(parts) + "\n"


def settings() -> str:
    """Return every setting of the processes."""
    parts = []
    for model in SETTINGS:
        title = model.__name__.removesuffix("Settings") + "s"
        rows = [f"| `{name}` | {default} | {what} |" for name, default, what in _fields(model)]
        parts.append("\n".join((f"## {title}", "", "| variable | default | |", "|---|---|---|", *rows)))
    return NOTE + "# Settings\n\nEach is an environment variable; many are also a flag.\n\n" + "\n\n".join(parts) + "\n"


HOW: Final = {
    Whose.CLUSTER: "the value of the whole cluster: take the largest",
    Whose.PART: "its own part: add them up",
    Whose.PROCESS: "itself",
}
"""What each scheduler tells, and so how to put several together."""


def metrics() -> str:
    """Return every metric of a scheduler."""
    parts = [
        "# Metrics",
        "",
        "Each scheduler serves all of these (`--metrics-listen`, `--http-listen`), besides `process_…` and `python_…`.",
    ]
    for title, section in SECTIONS.items():
        parts += ["", f"## {title}", "", "| metric | type | | each scheduler reports |", "|---|---|---|---|"]
        for metric in section:
            labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
            line = f"| `{metric.name}{labels}` | {metric.kind} | {_cell(metric.about)} | {HOW[metric.whose]} |"
            parts.append(line)
    return NOTE + "\n".join(parts) + "\n"


def _fields(model: type[BaseSettings]) -> Iterator[tuple[str, str, str]]:
    meanings: dict[str, str] = {}
    for base in (*reversed(model.__mro__[1:]), model):
        if base.__module__.startswith("onager."):
            members = _loaded(base.__module__)[base.__name__].attributes
            meanings |= {
                name: member.docstring.value for name, member in members.items() if member.docstring is not None
            }
    for name, field in model.model_fields.items():
        default = "computed at the start" if field.default_factory is not None else _default(field.default)
        yield f"{model.model_config['env_prefix']}{name.upper()}", default, _cell(meanings.get(name, ""))


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value in {"", ()}:
        return "none"
    return _cell(f"`{','.join(map(str, value)) if isinstance(value, tuple) else value}`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _loaded(module: str) -> Any:
    return griffe.load(module, search_paths=[str(HERE.parents[1])], resolve_aliases=True)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "cli.md": command_line,
    "python.md": python,
    "settings.md": settings,
    "metrics.md": metrics,
}


def main() -> int:
    """Write the pages; return 1 if one of them was not as it should be."""
    changed = 0
    for name, page in PAGES.items():
        path, text = HERE / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(HERE.parents[1])} written\n")
            changed = 1
    return changed


if __name__ == "__main__":
    sys.exit(main())
