"""From where an executor reads streams, by what its settings say."""

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
def test_what_stays_here_is_encrypted_or_is_meant_is_read(settings, address):
    check_reader(settings, address)


def test_a_task_that_runs_nobody_knows_where_is_not_read():
    with pytest.raises(OSError, match=r"address of a task .* is not known"):
        check_reader(StreamSettings(), "")


def test_who_takes_no_part_in_streams_reads_none():
    with pytest.raises(OSError, match="does not use streams"):
        check_reader(None, "127.0.0.1:7")
