import plyvel
import pytest

from onager.state_backend.leveldb.log import find_damage


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> bytes:
    """A log of three blocks, written by LevelDB, with records that cross from block to block."""
    path = tmp_path_factory.mktemp("db")
    db = plyvel.DB(str(path), create_if_missing=True)
    for n in range(60):
        db.put(b"%d" % n, bytes((n * i) % 251 for i in range(1500)))
    db.close()
    (file,) = path.glob("*.log")
    data = file.read_bytes()
    assert len(data) > 2 * 32 * 1024
    return data


def headers(data: bytes) -> list[int]:
    offset, found = len(data) // 32768 * 32768, []
    while len(data) - offset >= 7:
        found.append(offset)
        offset += 7 + int.from_bytes(data[offset + 4 : offset + 6], "little")
    return found


def test_a_whole_log_is_whole(log):
    assert find_damage(log) is None
    assert find_damage(b"") is None


def test_a_torn_log_is_not_damaged(log):
    last = headers(log)[-3]
    for end in range(last, len(log), 7):
        assert find_damage(log[:end]) is None, end


def test_a_length_that_runs_past_the_end_is_damage_when_its_record_is_there(log):
    for header in headers(log):
        for bit in range(16):
            broken = bytearray(log)
            broken[header + 4 + bit // 8] ^= 1 << bit % 8
            length = int.from_bytes(broken[header + 4 : header + 6], "little")
            if header + 7 + length > len(log):
                assert find_damage(bytes(broken)) == f"the length of the record at byte {header:,} is wrong"
