"""The reference is current, and other documents name only what there is."""

import re
from pathlib import Path

import pytest

from docs.reference.__main__ import HERE, PAGES
from onager.renamed_settings import RENAMED
from onager.state_backend.etcd import calls

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
SHIPPED = [
    *(path for path in ROOT.glob("deploy/**/*") if path.is_file() and path.suffix != ".pyc"),
    ROOT / "docker-compose.yml",
]
SOURCES = [
    *SHIPPED,
    *ROOT.glob("docs/**/*.py"),
    *(file for file in ROOT.glob("scripts/*") if file.is_file()),
    *(path for name in ("benchmarks", "integrations", "state_backend") for path in ROOT.glob(f"{name}/**/*.py")),
    *(path for name in ("chaos", "connect_*", "harness", "simulation") for path in ROOT.glob(f"tests/{name}/**/*.py")),
    *(ROOT / file for file in ("Dockerfile", "Makefile", "execution_graph/scripts.py")),
    ROOT / "tests/integration/planning/test_generated_queries.py",
]
"""Where flags and variables are defined that the reference does not have."""
OTHERS = {
    *("--cert-file", "--client-cert-auth", "--key-file", "--trusted-ca-file", "--peer-cert-file"),  # etcd
    *("--peer-client-cert-auth", "--peer-key-file", "--peer-trusted-ca-file", "--cluster", "--keys-only"),
    *("--add-opens", "--cacert", "--conn-host", "--conn-type"),  # Java, curl, Airflow
    *("--delete", "--exclude", "--from-file"),  # rsync, kubectl
}
"""Flags of other programs."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (HERE / name).read_text() == PAGES[name](), "make reference writes it anew"


def named(paths: list[Path]) -> dict[str, set[str]]:
    """Return the flags, and our variables, in the files at *paths*, with the names of the files."""
    found: dict[str, set[str]] = {}
    for path in paths:
        text = path.read_text()
        for pattern in (r"--(?<![\w-]--)[a-z][a-z-]*[a-z]\b", r"ONAGER_[A-Z0-9_]*[A-Z0-9]\b"):
            for name in re.findall(pattern, text):
                found.setdefault(name, set()).add(path.name)
    return found


def test_documents_name_no_flag_and_no_variable_that_nothing_has() -> None:
    known = named([*(HERE / name for name in PAGES), *SOURCES]).keys() | OTHERS | RENAMED.keys()
    assert {name: where for name, where in named(DOCUMENTS).items() if name not in known} == {}


def test_the_directories_that_are_shared_are_paths_wherever_they_are_given() -> None:
    given = re.compile(r"(?i)(?:--|_)(?:exchange.dir|warehouse)\s*[=:]?\s*['\"]?\w+://")
    assert [path.name for path in (*DOCUMENTS, *SHIPPED) if given.search(path.read_text())] == []


def test_the_messages_about_a_full_etcd_are_in_the_documents_word_by_word() -> None:
    section = (ROOT / "docs" / "operations.md").read_text().partition("### When etcd is full")[2]
    assert calls._FULL in " ".join(section.split())
