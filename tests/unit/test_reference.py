"""The reference is current."""

import pytest

from docs.reference.__main__ import HERE, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (HERE / name).read_text() == PAGES[name](), "make reference writes it anew"
