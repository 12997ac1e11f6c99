"""The file of frames that memory has no place for, which several threads use."""


def test_an_interrupted_reader_leaves_what_is_spilled_to_others(spark, tmp_path):
    jvm = spark._jvm
    file = jvm.onager.store.SpillFile(str(tmp_path), "spilled")
    file.write(b"rows", 4)
    jvm.java.lang.Thread.currentThread().interrupt()
    assert bytes(file.read(0, 4)) == b"rows"
    assert jvm.java.lang.Thread.interrupted()
    assert bytes(file.read(0, 4)) == b"rows"
    file.close()
    assert list(tmp_path.iterdir()) == []
