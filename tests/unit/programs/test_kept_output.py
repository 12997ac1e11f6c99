"""What attempts of a program print, in the folder that all hosts see."""

import pytest

from onager import program_output
from onager.program_output import KEPT, SEGMENT_BYTES, STDOUT, Frame, OutputFolder, frames_of, segments, shown


def kept(folder):
    """Return what is kept, in order: the attempt, and the text."""
    return [
        (segment.attempt, frame.text.decode())
        for segment in segments(folder)
        for frame in frames_of((folder / segment.name).read_bytes())[0]
    ]


def frame(number, text=b""):
    return Frame(STDOUT, number, "0", text or f"line {number}".encode())


@pytest.mark.parametrize("has_printed", [True, False])
def test_an_attempt_that_wakes_up_beside_its_successor_keeps_nothing_more(tmp_path, monkeypatch, has_printed):
    """Who follows the output is at the successor's, which prints again what the earlier one had not kept."""
    monkeypatch.setattr(program_output, "_LOOK_S", 0.0)
    first = OutputFolder(tmp_path, 1)
    first.add(frame(1))
    second = OutputFolder(tmp_path, 2)
    if has_printed:
        second.add(frame(2))
    first.add(frame(2))
    second.add(frame(3))
    assert kept(tmp_path) == [(1, "line 1"), *([(2, "line 2")] if has_printed else []), (2, "line 3")]
    assert shown(tmp_path) == {"0": 3}


def test_of_much_the_beginning_and_the_end_are_kept(tmp_path):
    output = OutputFolder(tmp_path, 1)
    for number in range(3 * KEPT):
        output.add(frame(number, b"x" * (SEGMENT_BYTES - 100)))
    numbers = [segment.start // (SEGMENT_BYTES - 100) for segment in segments(tmp_path)]
    assert numbers == [*range(KEPT), *range(2 * KEPT, 3 * KEPT)]
