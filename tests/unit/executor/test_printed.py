"""What a program prints is passed on in few pieces, however short its lines are."""

import os

import pytest

from onager.executor.attempt_logs import LINE_BYTES
from onager.executor.programs.printed import Printed
from onager.program_output import RAISED, STDOUT, Frame, OutputFolder
from onager.programs.output import Output


@pytest.fixture
def passed_on(tmp_path):
    """What is passed on, and a function that has a program print."""
    pieces: list[str] = []
    printed = Printed(OutputFolder(tmp_path, 1), {}, pieces.append)
    return pieces, lambda text: printed._keep(Frame(STDOUT, 0, "0", text))


def test_short_lines_are_passed_on_together(passed_on):
    """32,768 calls for each 64 KiB would keep the process that runs programs from the calls of all of them."""
    pieces, put = passed_on
    for _ in range(4):
        put(b"y\n" * 32_768)
    assert len(pieces) <= 4 * 65_536 // LINE_BYTES + 4
    assert "\n".join(pieces) == "\n".join("y" * 4 * 32_768)


def test_lines_that_are_printed_in_pieces_are_passed_on_whole(passed_on):
    pieces, put = passed_on
    for text in (b"one", b" line\nand", b" another\n", b"\n", b"z" * 100_000 + b"\nlast\n"):
        put(text)
    assert pieces[:3] == ["one line", "and another", ""]
    assert "".join(pieces[3:]) == "z" * 100_000 + "last"


def test_a_line_without_an_end_is_not_kept_in_memory(passed_on):
    pieces, put = passed_on
    for _ in range(10):
        put(b"z" * 65_536)
    assert sum(map(len, pieces)) >= 9 * 65_536


def test_the_error_of_a_script_comes_beside_what_it_prints(tmp_path):
    printed = Printed(OutputFolder(tmp_path, 1), {}, lambda _: None)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as frames:
        output = Output(writer, {})
        output.raised("DIVIDE_BY_ZERO", "22012", "Division by zero. " + "ä" * 10_000)
        os.close(writer)
        content = frames.read()
    assert printed._take_frames(content) == b""
    assert (printed.raised["error_class"], printed.raised["sql_state"]) == ("DIVIDE_BY_ZERO", "22012")
    assert printed.raised["message"].startswith("Division by zero. ää")
    for damaged in (b"{", b"[]", b'{"error_class": "X"}'):
        printed._take_frames(Frame(RAISED, 0, "0", damaged).encoded())
        assert printed.raised == {}
