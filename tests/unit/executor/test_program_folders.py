"""Where the attempts of an executor run."""

from onager.executor.programs.folder import parent_of


def test_executors_of_one_id_in_two_clusters_on_a_machine_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    one = parent_of("e-1", str(tmp_path / "one"))
    (one / "attempt").mkdir()
    assert parent_of("e-1", str(tmp_path / "other")) != one
    assert (one / "attempt").exists()
    assert parent_of("e-1", str(tmp_path / "one")) == one
    assert not any(one.iterdir()), "what an earlier life has left is gone"
