import pytest

from onager.errors import SchemaVersionError, StateCorruptError
from onager.scheduler.records import COMPRESS_ABOVE_BYTES, Record, pack, pack_blob, unpack


class Note(Record):
    text: str


def test_small_records_are_plain_json_and_large_ones_say_that_they_are_not():
    assert Note(text="hello").encoded() == b'{"schema_version":"1.0","text":"hello"}'
    large = Note(text="x" * COMPRESS_ABOVE_BYTES)
    assert large.encoded()[:1] == b"\x01"
    assert len(large.encoded()) < 1_000
    assert Note.decoded(large.encoded(), "it") == large


@pytest.mark.parametrize("data", [b"", b"{", b"\x00", b"\x01", b"x" * 100_000])
def test_any_bytes_survive(data):
    assert unpack(pack_blob(data), "it") == data
    if data[:1] not in (b"\x00", b"\x01"):
        assert unpack(pack(data), "it") == data


def test_a_newer_minor_version_is_read_without_what_it_added():
    assert Note.decoded(b'{"schema_version":"1.7","text":"a","more":1}', "it").text == "a"


def test_a_newer_major_version_is_refused():
    with pytest.raises(SchemaVersionError, match="2"):
        Note.decoded(b'{"schema_version":"2.0","words":"a"}', "it")


@pytest.mark.parametrize("data", [b"", b"\x01x", b"{", b"[]", b'{"text":"a"}', b'{"schema_version":"one","text":"a"}'])
def test_damage_is_named(data):
    with pytest.raises(StateCorruptError, match="the note"):
        Note.decoded(data, "the note")


def test_what_cannot_be_read_of_a_newer_minor_version_is_not_called_damaged():
    with pytest.raises(SchemaVersionError, match=r"1\.3"):
        Note.decoded(b'{"schema_version":"1.3","words":"a"}', "the note")


def test_a_record_of_a_newer_minor_version_is_written_again_as_one_of_this():
    found = Note.decoded(b'{"schema_version":"1.3","text":"a","more":1}', "it")
    assert found.encoded() == b'{"schema_version":"1.0","text":"a"}'
