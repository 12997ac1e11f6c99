import os

import pytest


@pytest.fixture
def nothing_is_synced(monkeypatch):
    """Only a loss of power shows whether it was, and thousands of publishings take their time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
