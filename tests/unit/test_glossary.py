"""One word for each thing (`docs/glossary.md`): no earlier word is left in names, messages, docs and tests."""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EARLIER = {
    r"replicas?": "scheduler",
    r"members?|membership": "scheduler",
    r"peers?": "scheduler, executor, address",
    r"pipelin(e|es|ed|ing)": "streaming",
    r"aside": "quarantined",
    r"programs? (steps?|plan)|steps? of (a program|programs)|program s steps?": "script",
    r"(un)?told": "reported, sent, notified",
    r"(un)?hear(d|s|ing)?": "received, learned",
    r"ow(e|ed|es|ing)": "due",
    r"bur(y|ies|ied)": "expire",
}
"""Patterns of earlier words, as they are in `words`, and what is said instead."""

NOT_OURS = (
    "*_pb2.py",
    "*_pb2.pyi",
    "*_pb2_grpc.py",
    "scheduler/http/static/*",
    "page/package-lock.json",
    "requirements/*",
    "*.svg",
    "*.png",
    "*.binpb",
    "onager/protocol/externalscaler.proto",
)
"""Made by programs, or by others."""

ABOUT_EARLIER = (
    "CHANGELOG.md",
    "docs/history.md",
    "docs/glossary.md",
    "onager/renamed_settings.py",
    "tests/unit/test_glossary.py",
    "tests/unit/cli/test_renamed_settings.py",
    "tests/integration/scheduler/release_0_1/*",
)
"""They name what things were called, or belong to the release before."""

OF_ETCD = (
    *(
        "state_backend/etcd/*",
        "tests/support/etcd/*",
        "tests/integration/etcd/*",
        "tests/unit/state_backend/test_etcd_*",
    ),
    *("tests/faults/*", "tests/contract/*", "tests/chaos/*", "tests/machines/*", "tests/conftest.py"),
    *("deploy/*", "docker-compose.yml", "tests/unit/test_deployment_files.py"),
    *("docs/chaos.md", "docs/machines.md", "docs/operations.md", "docs/deployment.md", "docs/decisions/0007-etcd.md"),
    *("benchmarks/etcd_server.py", "benchmarks/state/backends.py"),
)
OF_ARCHIVES = ("executor/unpacking.py", "tests/unit/executor/test_unpacking.py")
OF_CLASSES = ("executor/spark/jvm.py", "docs/reference/__main__.py")
OF_KUBERNETES = ("deploy/kubernetes/*", "docs/deployment.md")
ALLOWED = (
    ("members and peers of etcd", r"members?|peers?", OF_ETCD, r""),
    ("members of etcd, in a line that says so", r"members?", ("*",), r"etcd"),
    ("etcd's flags", r"peer", ("tests/unit/test_reference.py",), r"--peer-"),
    ("files in archives", r"members?", OF_ARCHIVES, r""),
    ("what classes consist of", r"members?", OF_CLASSES, r""),
    ("gRPC's method", r"peer", ("*",), r"\bpeer\(|\bpeer=lambda"),
    ("gRPC's method, simulated", r"peer", ("tests/simulation/network.py",), r""),
    ("Spark's metric and request", r"pipelines?", ("*",), r"pipelineTime|pipeline_command"),
    ("Spark's pipelines", r"pipelines", ("docs/connect.md",), r""),
    ("what seeds draw by", r"replica|told", ("tests/simulation/*",), r"_rng\(\"replica\"|f\"replica-|Random\(f\"told "),
    ("Kubernetes' fields", r"replicas?", OF_KUBERNETES, r"[rR]eplicas\b|ReplicaCount"),
)
"""What the words mean there, which words, in which files, and in which lines."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_EARLIER = re.compile(rf"\b({'|'.join(f'(?:{pattern})' for pattern in EARLIER)})\b")
_MAYBE = re.compile(r"replica|member|peer|pipelin|aside|program|told|hear|\bow|_ow|bur[iy]", re.IGNORECASE)


def words(line: str) -> str:
    """Return the words of *line* in lower case, those that names consist of included."""
    return " ".join(_WORD.findall(line)).lower()


def earlier_words(line: str) -> list[str]:
    """Return the earlier words in *line*."""
    return [found[0] for found in _EARLIER.finditer(words(line))] if _MAYBE.search(line) else []


def matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch(name, glob) for glob in globs)


def why_allowed(name: str, line: str, word: str) -> str | None:
    """Return what *word* means in this line of the file *name*, if it is not ours."""
    for meaning, pattern, globs, in_line in ALLOWED:
        if re.fullmatch(pattern, word) and matches(name, globs) and re.search(in_line, line):
            return meaning
    return None


def lines() -> Iterator[tuple[str, int, str]]:
    """Yield the name of each of our files with the number and the text of each of its lines; line 0 is its name."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in sorted(set(filter(None, listed.split("\0")))):
        path = ROOT / name
        if matches(name, NOT_OURS) or matches(name, ABOUT_EARLIER) or path.is_symlink() or not path.is_file():
            continue
        yield name, 0, name
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
            yield name, number, line


def test_no_earlier_word_is_left():
    left, used, count = [], set(), 0
    for name, number, line in lines():
        count += 1
        for word in earlier_words(line):
            if (meaning := why_allowed(name, line, word)) is None:
                left.append(f"{name}:{number}: {word}: {line.strip()[:100]}")
            used.add(meaning)
    assert count > 150_000
    assert not left, "\n".join(left)
    assert {meaning for meaning, *_ in ALLOWED} <= used, "what nothing needs is not allowed"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("class ReplicaService:", ["replica"]),
        ("self._live_members = MEMBERS", ["members", "members"]),
        ("let isPipelined = true;", ["pipelined"]),
        ("it is set aside: SetAsideNotice, SET_ASIDE_S", ["aside", "aside", "aside"]),
        ("def is_told(): the executor owes, and hears of it", ["told", "owes", "hears"]),
        ("a program plan of steps of programs", ["program plan", "steps of programs"]),
        ("a program of PySpark; shown below; an owner; hearth; untoward; remembers; HTTPError", []),
    ],
)
def test_words_are_found_within_names_and_other_words_are_not(line, found):
    assert earlier_words(line) == found
