"""The documentation as a site: every page is in the navigation, every link and anchor leads somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site_hooks import PAGES
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s>]*")
"""What a browser loads from another site when it shows a page."""


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, check=False, capture_output=True, text=True, timeout=HANGS_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("site")
    done = build(ROOT, made)
    assert done.returncode == 0, done.stderr
    return made


def test_the_site_has_every_page(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {page.with_name("index.html") if page.name == "README.html" else page for page in pages}
    pages |= {Path(name).with_suffix(".html") for name in PAGES.values()}
    assert sorted(str(page) for page in pages if not (site / page).is_file()) == []


def test_the_site_loads_nothing_from_elsewhere(site):
    assert {path.name: LOADED.findall(path.read_text()) for path in site.rglob("*.html")} == {
        path.name: [] for path in site.rglob("*.html")
    }


def test_pages_link_to_pages_and_to_copies_of_sources(site):
    assert 'href="queries.html#datasets"' in (site / "overview.html").read_text()
    assert 'href="source/onager/errors.py.txt"' in (site / "rest.html").read_text()
    assert (site / "source/onager/errors.py.txt").read_text() == (ROOT / "onager/errors.py").read_text()


def test_the_index_of_decisions_has_every_decision():
    decisions = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (decisions / "README.md").read_text())
    assert listed == sorted(path.name for path in decisions.glob("[0-9]*.md"))


def test_a_broken_link_a_broken_anchor_and_a_page_that_nothing_lists_are_found(tmp_path):
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav: [README.md, rest.md, {{Decisions: []}}]\n")
    pages = {"docs/README.md": "# Documentation\n", "docs/rest.md": "# REST\n", **dict.fromkeys(PAGES, "# Another\n")}
    pages["docs/orphan.md"] = "# Orphan\n\n[gone](gone.md) [no such part](rest.md#none-of-it)\n"
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(ROOT / "docs" / "site_hooks.py", tmp_path / "docs")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for found in (
        'not included in the "nav" configuration:\n  - orphan.md',
        "'orphan.md' contains a link 'gone.md', but the target is not found",
        "'orphan.md' contains a link 'rest.md#none-of-it', but the doc 'rest.md' does not contain an anchor",
    ):
        assert found in done.stderr, done.stderr
