"""What is changed in PySpark is all that draws in it: a new PySpark that draws elsewhere fails here."""

import ast
import importlib
from pathlib import Path

import pyspark

from onager.programs.changes import CACHES, DRAWING

ROOT = Path(pyspark.__file__).parent
FOLDERS = ("sql/connect", "sql/dataframe.py", "sql/session.py", "cloudpickle")
ELSEWHERE = {
    ("pyspark.sql.connect.client.reattach", "uuid"): "not used: the program's stub goes on by itself",
    ("pyspark.sql.connect.session", "uuid"): "a server of PySpark's own, which no program of a cluster starts",
    ("pyspark.sql.connect.local_server", "uuid"): "likewise",
    ("pyspark.cloudpickle.cloudpickle", "uuid"): "ids of classes: replaced by `_Trackers`",
}
NAMES = {"random", "uuid", "secrets"}


def modules():
    for folder in FOLDERS:
        path = ROOT / folder
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if "proto" not in file.parts and "tests" not in file.parts and "streaming" not in file.parts:
                yield file


def drawing(file):
    """Return the names by which a file uses modules that draw."""
    tree = ast.parse(file.read_text())
    named = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name in NAMES:
                    named[each.asname or each.name] = each.name
        elif isinstance(node, ast.ImportFrom) and node.module in NAMES:
            named |= {each.asname or each.name: node.module for each in node.names}
    return set(named)


def test_every_module_that_draws_is_changed():
    found = set()
    for file in modules():
        module = ".".join(("pyspark", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        found |= {(module, name) for name in drawing(file)}
    assert found == set(DRAWING) | set(ELSEWHERE)


def test_what_is_changed_is_there():
    for module, name in DRAWING:
        assert hasattr(importlib.import_module(module), name)
    for module, owner, name, _ in CACHES:
        text = Path(importlib.import_module(module).__file__).read_text()
        assert f"self.{name}" in text, (owner, name)
