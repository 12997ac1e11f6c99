"""What schedulers serve was built from the sources in page/, whether Node is there or not."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "page"
STATIC = ROOT / "scheduler" / "http" / "static"
_MAX_BYTES = 200_000


def test_it_was_built_from_these_sources():
    names = ["build.mjs", "package.json", "package-lock.json"]
    names += [path.relative_to(PAGE).as_posix() for path in (PAGE / "src").rglob("*") if path.is_file()]
    found = hashlib.sha256()
    for name in sorted(names):
        content = (PAGE / name).read_bytes()
        found.update(f"{name} {len(content)}\n".encode() + content)
    built_from = (STATIC / "built-from.txt").read_text().strip()
    assert found.hexdigest() == built_from, "the sources have changed: make page builds it anew (Node 20, npm)"


def test_building_again_gives_the_same_bytes(tmp_path):
    node = shutil.which("node")
    if node is None or not (PAGE / "node_modules").is_dir():
        return  # who has changed the page has both; the test above holds for everybody
    subprocess.run([node, PAGE / "build.mjs", tmp_path], check=True, timeout=HANGS_S)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert built == {path.name: path.read_bytes() for path in STATIC.iterdir()}


def test_it_is_small_and_brings_its_licences():
    assert all(path.stat().st_size < _MAX_BYTES for path in STATIC.iterdir())
    licences = (STATIC / "licences.txt").read_text()
    locked = json.loads((PAGE / "package-lock.json").read_text())["packages"]
    for name in ("preact", "htm", "uplot", "@dagrejs/dagre", "@dagrejs/graphlib"):
        assert f"{name} {locked[f'node_modules/{name}']['version']} (" in licences


def test_packages_are_pinned_by_their_content_and_no_host_is_named():
    text = (PAGE / "package-lock.json").read_text()
    assert "://" not in re.sub(r'"url": "[^"]*"', "", text), "no address of a registry"
    packages = {name: each for name, each in json.loads(text)["packages"].items() if name}
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())


def test_it_names_nothing_elsewhere():
    index = (STATIC / "index.html").read_text()
    assert "://" not in index
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", index), "the CSP refuses what is inline"
