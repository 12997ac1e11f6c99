"""The kernel is a Java module with layered packages, one of which has all calls of Spark's constructors."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

from onager.executor.spark.kernel_build import digest_of
from onager.executor.spark.kernel_jar import SOURCES, kernel_version

ROOT = Path(__file__).parents[2]
PACKAGES = SOURCES / "onager"
SPARK = "spark43"
STABLE = {
    *("SerializableConfiguration", "TaskKilledException", "JavaSparkContext", "UnsafeRow", "StructField", "StructType"),
    *("DriverPlugin", "ExecutorPlugin", "RpcResponseCallback"),  # interfaces
    "PythonAccumulatorV2",  # extended, and made as PySpark makes it
}
"""Classes of Spark that other packages make, too: they are for everybody, and have not changed since Spark 3."""


def imports_of(source):
    return re.findall(r"^import (?:static )?([\w.$]+);", source.read_text(), flags=re.MULTILINE)


def order_of_packages():
    """Return the packages, those that others rest on first; `graphlib.CycleError` when there is no such order."""
    needs = {path.name: set() for path in PACKAGES.iterdir() if path.is_dir()}
    for name, below in needs.items():
        for source in (PACKAGES / name).rglob("*.java"):
            for imported in imports_of(source):
                if imported.startswith("onager."):
                    below.add(imported.split(".")[1])
    return list(TopologicalSorter({name: below - {name} for name, below in needs.items()}).static_order())


def test_no_package_needs_one_that_needs_it(record_property):
    order = order_of_packages()
    record_property("packages", " < ".join(order))
    assert set(order) == {path.name for path in PACKAGES.iterdir() if path.is_dir()}


def test_imports_say_all_that_a_package_needs():
    wrong = [
        str(source.relative_to(PACKAGES))
        for source in PACKAGES.rglob("*.java")
        if re.search(
            r"(?<![\w.\"])onager\.\w+\.[A-Z]", re.sub(r"^import .*", "", source.read_text(), flags=re.MULTILINE)
        )
    ]
    assert wrong == []


def test_spark_is_constructed_and_looked_into_in_one_package():
    wrong = []
    for source in PACKAGES.rglob("*.java"):
        if source.parent.name == SPARK:
            continue
        text = source.read_text()
        spark = {name.rpartition(".")[2] for name in imports_of(source) if name.startswith("org.apache.spark.")}
        made = set(re.findall(r"new (\w+)[(<]|(\w+)::new", text))
        wrong += [f"{source.name}: new {name}" for pair in made for name in pair if name in spark - STABLE]
        wrong += [f"{source.name}: {word}" for word in ("setAccessible", "getDeclaredField") if word in text]
    assert wrong == []


def test_python_names_classes_of_the_kernel_in_one_package():
    packages = "|".join([*order_of_packages(), "Kernel"])
    named = re.compile(rf"\"onager\.(?:Kernel|(?:{packages})\.[A-Z]\w*)\"|\bjvm\.onager\.")
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for top in ("executor", "onager", "benchmarks", "deploy")
        for path in (ROOT / top).rglob("*.py")
        if path.parent != ROOT / "executor/spark/kernel"
        for found in named.findall(path.read_text())
    ]
    assert wrong == []


def test_what_tells_a_kernel_from_others_follows_from_its_sources(tmp_path):
    (tmp_path / "A.java").write_text("class A {}\n")
    before = digest_of(tmp_path)
    (tmp_path / "A.java").write_text("class A { }\n")
    assert digest_of(tmp_path) != before
    assert kernel_version().endswith(f"-{digest_of(SOURCES)[:8]}")
