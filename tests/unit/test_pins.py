"""What is installed is pinned: exact versions, with the hashes of their files."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = sorted((Path(__file__).parents[2] / "requirements").glob("*.txt"))


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.stem)
def test_every_pin_has_hashes_and_no_file_names_an_address(file):
    lines = file.read_text().replace("\\\n", "").splitlines()
    pins = [line for line in lines if line and not line.startswith(("#", "-r "))]
    form = re.compile(r"[a-z0-9-]+==[\w.]+( ; [^#]+)?( +--hash=sha256:[0-9a-f]{64})+")
    assert [pin for pin in pins if not form.fullmatch(pin.rstrip())] == []
    assert "://" not in file.read_text()
