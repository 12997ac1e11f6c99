"""What ``make cluster`` says before it starts anything."""

import shutil

from deploy import local_cluster


def test_an_address_that_nobody_would_listen_at_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "haproxy" else f"/nowhere/{name}")
    code = local_cluster.main(["--directory", str(tmp_path / "cluster"), "--listen", "127.0.0.1:50051"])
    assert code == 1
    printed = capsys.readouterr().err
    assert "nothing would listen at 127.0.0.1:50051: it is the address of HAProxy, which is not installed" in printed
    assert not (tmp_path / "cluster").exists()
