"""The contents of a submission."""

import subprocess
import sys
from pathlib import Path

import pytest

from onager.client import View
from onager.client.client import _title
from onager.client.spec import job_spec, python_message, sink_message, view_message, views_from
from onager.errors import InvalidRequestError, InvalidSettingError, RequestTooLargeError


def _spec(**parts):
    return job_spec(**{"sql": "SELECT 1", "name": "n", "views": {}, "conf": {}, **parts})


def doubled(session):
    return session.range(2)


def test_views_are_absolute_and_their_format_is_left_to_who_reads_them(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    spec = _spec(views={"a": "x.parquet", "b": Path("y.csv"), "c": "s3a://bucket/z", "d": View("w", "orc", {"k": "v"})})
    paths = {view.name: (view.path, view.format) for view in spec.views}
    assert paths == {
        "a": (str(tmp_path / "x.parquet"), ""),
        "b": (str(tmp_path / "y.csv"), ""),
        "c": ("s3a://bucket/z", ""),
        "d": (str(tmp_path / "w"), "orc"),
    }
    assert not spec.views[1].options, "what holds unless it is said is known to who reads the files"
    assert dict(spec.views[3].options) == {"k": "v"}


def test_a_format_that_nobody_reads_is_refused():
    with pytest.raises(InvalidSettingError, match="expected one of parquet"):
        view_message("v", View("x", "xlsx"))


def test_views_from_takes_files_and_directories_and_leaves_the_rest(tmp_path):
    (tmp_path / "orders.parquet").touch()
    (tmp_path / "people.csv").touch()
    (tmp_path / "readme.md").touch()
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "events.json").mkdir()
    nested = tmp_path / "sales" / "year=2024"
    nested.mkdir(parents=True)
    (nested / "_SUCCESS").touch()
    (nested / "part-0.orc").touch()
    views = views_from(tmp_path)
    assert {name: view.format for name, view in views.items()} == {
        "orders": "parquet",
        "people": "csv",
        "events": "json",
        "sales": "orc",
    }


def test_views_from_refuses_what_is_not_there_or_not_clear(tmp_path):
    with pytest.raises(InvalidSettingError, match="no such directory"):
        views_from(tmp_path / "nowhere")
    with pytest.raises(InvalidSettingError, match="it has no parquet"):
        views_from(tmp_path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.json").touch()
    with pytest.raises(InvalidSettingError, match="two entries would both be view 'a'"):
        views_from(tmp_path)


def test_conf_values_are_written_as_spark_writes_them():
    assert dict(_spec(conf={"a": True, "b": 3, "c": "x"}).conf) == {"a": "true", "b": "3", "c": "x"}


def test_sinks_are_checked_before_anything_is_sent(tmp_path):
    assert sink_message(tmp_path / "o", "csv", "append", {}).path == str(tmp_path / "o")
    with pytest.raises(InvalidSettingError, match="format='avro'"):
        sink_message("o", "avro", "error", {})
    with pytest.raises(InvalidSettingError, match="mode='ignore'"):
        sink_message("o", "csv", "ignore", {})


def test_five_megabytes_of_sql_fit_and_forty_do_not():
    assert len(_spec(sql="SELECT 1 " + " " * 5_000_000).sql.text) > 5_000_000
    with pytest.raises(RequestTooLargeError, match="put data into files"):
        _spec(sql="x" * 40_000_000)


def test_a_python_file_is_sent_with_its_function(tmp_path):
    file = tmp_path / "job.py"
    file.write_text("def main(session): ...")
    message, name = python_message(str(file), {"n": 3})
    assert (message.function, message.file_name, name) == ("main", "job.py", "job.py:main")
    assert message.source == file.read_bytes()
    assert message.arguments_json == '{"n": 3}'
    assert python_message(f"{file}:other", {})[0].function == "other"


def test_python_jobs_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(InvalidRequestError, match=r"nowhere\.py cannot be read: No such file"):
        python_message(str(tmp_path / "nowhere.py"), {})
    with pytest.raises(InvalidSettingError, match="expected FILE or FILE:function"):
        python_message(f"{tmp_path}/job.py:not a name", {})
    with pytest.raises(InvalidRequestError, match="must be JSON values"):
        python_message(doubled, {"x": object()})


def test_a_function_of_the_users_module_is_pickled_by_value(tmp_path):
    message, name = python_message(doubled, {})
    assert name == "doubled"
    (tmp_path / "f.pickle").write_bytes(message.pickled)
    # Read where this module cannot be imported, as on an executor.
    code = "import pickle; print(pickle.load(open('f.pickle', 'rb')).__name__)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "doubled\n"


def test_py_files_are_modules_or_zips(tmp_path):
    module = tmp_path / "lib.py"
    module.write_text("X = 1")
    assert _spec(py_files=[module]).py_files[0].content == b"X = 1"
    with pytest.raises(InvalidSettingError, match=r"expected NAME\.py or a \.zip"):
        _spec(py_files=[tmp_path / "lib.txt"])


def test_a_title_is_the_querys_first_words():
    assert _title("-- a comment\n\nSELECT  a\nFROM t", frozenset()) == "SELECT a FROM t"
    assert _title("x" * 100, frozenset()) == "x" * 59 + "…"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM jdbc_table OPTIONS (password 'hunter2hunter2hunter2hunter2hunter2hunter2')",
        "SET spark.hadoop.fs.s3a.secret.key = hunter2; SELECT 1",
        "SET my.word = hunter2; SELECT 1",
        "SELECT 'postgresql://me:hunter2@host/db'",
    ],
)
def test_a_title_has_no_secret(text):
    assert "hunter2" not in _title(text, frozenset({"my.word"}))
