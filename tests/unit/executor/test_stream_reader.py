"""From which addresses an executor reads streams, depending on its settings."""

from pathlib import Path

import pytest

from onager.executor.spark.running.streams import StreamSettings, check_reader


def test_plaintext_from_another_machine_is_not_read():
    with pytest.raises(OSError, match=r"executor-2:7 is on another machine.*--auth-token-file"):
        check_reader(StreamSettings(), "executor-2:7")


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (StreamSettings(), "127.0.0.1:7"),
        (StreamSettings(), "[::1]:7"),
        (StreamSettings(token_file=Path("tokens")), "executor-2:7"),
        (StreamSettings(insecure=True), "executor-2:7"),
    ],
)
def test_local_encrypted_or_explicitly_insecure_streams_are_read(settings, address):
    check_reader(settings, address)


def test_a_stream_without_a_known_address_is_not_read():
    with pytest.raises(OSError, match=r"address of a task .* is not known"):
        check_reader(StreamSettings(), "")


def test_an_executor_that_does_not_use_streams_reads_none():
    with pytest.raises(OSError, match="does not use streams"):
        check_reader(None, "127.0.0.1:7")
