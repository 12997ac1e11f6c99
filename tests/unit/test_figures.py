"""README and docs/performance.md quote figures from one file, which one run writes."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.adaptive_turns import summary
from docs.figure_blocks import BLOCKS
from docs.figures import BLOCK, PAGES, block, load, rendered

PERFORMANCE = "performance.md"
MEASURED = re.compile(
    r"(?<![\w.])\d[\d.,]*\s*(?:(?:µs|ms|s|seconds?|times|\w+/s|\w+ (?:a|per) second|percent)(?!\w)|[\u00d7%])"
)
"""A number with a unit of time, rate or ratio: README has none of its own. A limit in bytes is none."""
NOT_TEXT = re.compile(r"```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\)|SF [\d.]+", re.DOTALL)
"""Code, links, and scale factors."""


def own_figures(name: str, text: str) -> list[str]:
    """Return the figures of a page that stand outside its blocks."""
    text = BLOCK.sub("", text)
    return re.findall(r".*\d.*", NOT_TEXT.sub("", text)) if name == PERFORMANCE else MEASURED.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_quotes_the_file(page):
    assert rendered(page.read_text(), load()) == page.read_text(), "make reference writes it anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_figures_of_its_own(page):
    assert own_figures(page.name, page.read_text()) == [], (
        "benchmarks.figures measures it, docs.figure_blocks quotes it"
    )


@pytest.mark.parametrize(
    "said",
    [
        "0.74 times its time",
        "17 ms",
        "1,234 µs",
        "2.5 s more",
        "140 MB/s",
        "9 tasks/s",
        "9 jobs a second",
        "4 \u00d7",
        "5%",
    ],
)
@pytest.mark.parametrize("page", ["README.md", PERFORMANCE])
def test_a_figure_outside_a_block_is_found(page, said):
    assert own_figures(page, f"It took {said}.\n")
    assert not own_figures(page, f"<!-- figures: run -->\nIt took {said}.\n<!-- end -->\n")


def test_a_limit_is_no_figure():
    assert not own_figures(
        "README.md", "up to 16 MiB of input, Python 3.11, `local[2]`, SF 0.1, 2026-03-01, 127.0.0.1:50050"
    )


def test_each_block_is_on_one_page():
    names = [found[2] for page in PAGES for found in BLOCK.finditer(page.read_text())]
    assert sorted(names) == sorted(BLOCKS)


@pytest.mark.parametrize("name", figures.MEASUREMENTS)
def test_a_benchmark_has_the_options_of_its_command(name):
    _, _, module, *options = figures.command(name).split()
    spec = find_spec(module)
    source = Path(spec.origin).with_name("__main__.py") if spec.submodule_search_locations else Path(spec.origin)
    options = [option for option in (*options, "--json") if option.startswith("--")]
    assert [option for option in options if f'"{option}"' not in source.read_text()] == []


@pytest.mark.parametrize("name", sorted(set(BLOCKS) - {"run", "readme"}))
def test_what_is_not_there_is_not_made_up(name):
    assert "ot measured yet (`python -m benchmarks." in block(name, {})
    failed = {name: {"command": figures.command(name), "failed": "exit code 1"} for name in figures.MEASUREMENTS}
    text = block(name, {"measured": failed})
    assert "ailed (`python -m benchmarks." in text
    assert not re.search(r"\d", NOT_TEXT.sub("", re.sub(r"of [\d,]+ keys|[\d,]+ puts", "", text)))


def test_a_block_ends_with_the_commands_that_measured_it():
    times_s = {"q1": {"off": [1.0, 1.2], "on": [1.5, 1.1]}, "q2": {"off": [3.0, 2.8], "on": [3.1, 2.9]}}
    suite = summary(times_s, {"q1": True, "q2": False})
    assert suite["ratio"] == round(4.0 / 3.8, 3)
    found = {"command": "python -m benchmarks.adaptive_turns", "figures": {"tpch": suite, "analytics": suite}}
    text = block("adaptive-turns", {"measured": {"adaptive-turns": found}})
    assert "| TPC-H, SF 1 | 1 of 2 | 3.8 | 4.0 | 1.05 | 1.15, 1.00 | 1.10 |\n" in text
    assert text.endswith("\n\n`python -m benchmarks.adaptive_turns`")


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Return what runs two benchmarks, of which the second fails, and returns exit code and file."""
    monkeypatch.setattr(figures, "FILE", tmp_path / "figures.json")
    monkeypatch.setattr(figures, "_OUT", tmp_path / "out")
    monkeypatch.setattr(figures, "_LOOK_S", 0.01)
    monkeypatch.setattr(figures, "MEASUREMENTS", {"broken": "graph --tasks none", "graph": "graph --tasks 100"})

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["figures", "--anyway", *options])
        return figures.main(), json.loads(figures.FILE.read_text())

    return run


def test_one_that_fails_does_not_keep_others_from_running(measure):
    code, reported = measure()
    assert code == 1
    assert reported["measured"]["broken"]["failed"] == "exit code 2"
    assert reported["measured"]["graph"]["command"] == "python -m benchmarks.graph --tasks 100"
    assert [run["tasks"] for run in reported["measured"]["graph"]["figures"]["runs"]] == [10, 100]
    assert "| 10 tasks | 100 tasks |" in block("graph", reported)
    code, again = measure("--only", "graph")
    assert (code, again["measured"]["broken"]) == (0, reported["measured"]["broken"])


def test_figures_of_several_commits_are_not_put_together(measure):
    _, reported = measure("--only", "graph")
    figures.FILE.write_text(json.dumps(reported | {"commit": "another"}))
    with pytest.raises(SystemExit, match="the other figures are of commit another, not "):
        measure("--only", "graph")
    assert json.loads(figures.FILE.read_text())["commit"] == "another"


def test_what_is_measured_is_a_commit_on_a_quiet_machine():
    assert figures.unfit(is_changed=False, busy_percent=2.0) == {}
    assert len(figures.unfit(is_changed=True, busy_percent=2.0)) == 1
    assert len(figures.unfit(is_changed=True, busy_percent=60.0)) == 2
