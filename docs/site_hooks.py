"""What the site needs beside MkDocs: pages from outside ``docs/``, links to source files, decisions in the navigation.

The Markdown files link to each other as Git hosting resolves links. MkDocs knows only the files below ``docs/``, so the
links of each page are rewritten: to the page of the site, or to a copy of the source file below ``source/``.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
"""Pages of the site that are not below ``docs/``: their files, and their names in the site."""
_FENCE: Final = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
_INDENT: Final = re.compile(r"^ {2,}(?=\S)", re.MULTILINE)
_LINK: Final = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every decision to the navigation, in the order of their numbers."""
    pages: list[Any] = next(part["Decisions"] for part in config.nav or [] if "Decisions" in part)
    pages += [f"decisions/{path.name}" for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside ``docs/``."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of *page*."""
    name = page.file.src_uri
    source = next((source for source, known in PAGES.items() if known == name), f"docs/{name}")

    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / path / "README.md").is_file():
            path = f"{path}/README.md"
        if (ROOT / path).is_dir():
            return text[1:-1]
        found = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if found is None or files.get_file_from_path(found) is None:
            if not (ROOT / path).is_file():
                return link[0]  # MkDocs reports it
            found = _add_source(path, config, files)
        return f"{text}({posixpath.relpath(found, posixpath.dirname(name))}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if _FENCE.fullmatch(part) else _nested(_LINK.sub(rewrite, part)) for part in parts)


def _nested(text: str) -> str:
    """Indent nested lists by four spaces, as MkDocs wants them; Git hosting is content with two."""
    return _INDENT.sub(lambda found: found[0] * 2, text)


def _add_source(path: str, config: MkDocsConfig, files: Files) -> str:
    """Publish the source file at *path* as text, and return its name in the site."""
    name = f"source/{path}.txt"
    if files.get_file_from_path(name) is None:
        content = (ROOT / path).read_text()
        files.append(File.generated(config, name, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return name
