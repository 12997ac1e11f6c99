"""Mistakes of users and operators: the message says what is wrong, where, and what to do, and the cluster continues."""

import contextlib
import re
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onager.errors import JobFailedError, OnagerError
from tests.e2e.conftest import JOBS, UNFUSED
from tests.support.processes.cluster import Cluster
from tests.support.selection import some
from tests.support.waiting import HANGS_S, until


@pytest.fixture
def cluster(shared_cluster):
    """The shared cluster, which must still answer a query after each test."""
    yield shared_cluster
    assert shared_cluster.client.sql("SELECT 6 * 7 AS answer").to_arrow().to_pylist() == [{"answer": 42}]
    assert all(shared_cluster.info(executor) is not None for executor in ("e-1", "e-2"))


def failure(job) -> JobFailedError:
    with pytest.raises(JobFailedError) as caught:
        job.wait(timeout=HANGS_S)
    assert job.progress().state == "failed"
    return caught.value


def answer_or_message(job) -> list[dict] | str:
    try:
        return job.to_arrow().to_pylist()
    except JobFailedError as error:
        return str(error)


def test_sql_that_does_not_parse(cluster):
    error = failure(cluster.client.sql("SET spark.sql.ansi.enabled = true;\nSELEC 2"))
    assert error.error_class == "PARSE_SYNTAX_ERROR"
    assert "SELEC" in str(error)


@pytest.mark.parametrize(
    "statement",
    some(
        [
            "INSERT INTO t VALUES (1)",
            "DROP TABLE t",
            "LOAD DATA INPATH '/tmp/x' INTO TABLE t",
            "CREATE FUNCTION f AS 'a.B' USING JAR '/tmp/a.jar'",
            "TRUNCATE TABLE t",
            "ALTER TABLE t ADD COLUMN b INT",
        ]
    ),
)
def test_a_statement_that_is_refused_is_reported_with_its_place(cluster, statement):
    message = str(failure(cluster.client.sql(f"SET spark.sql.ansi.enabled = true;\n{statement};\nSELECT 1")))
    assert " ".join(statement.split()[:2]).split("(")[0].split()[0] in message.upper()
    assert "line 2" in message


def test_a_script_that_ends_in_a_command(cluster):
    assert "DROP" in str(failure(cluster.client.sql("DROP TABLE t"))).upper()


def test_a_udf_that_captures_a_broadcast_variable_is_right_or_refused(cluster):
    answer = answer_or_message(cluster.client.python(f"{JOBS}:captures_broadcast", conf=UNFUSED))
    if isinstance(answer, str):
        assert "broadcast" in answer
    else:
        assert sorted(row["square"] for row in answer) == [i * i for i in range(10)]


def test_an_unknown_table(cluster):
    error = failure(cluster.client.sql("SELECT * FROM no_such_table"))
    assert error.error_class == "TABLE_OR_VIEW_NOT_FOUND"
    assert "no_such_table" in str(error)


def test_an_unknown_column(cluster):
    error = failure(cluster.client.sql("SELECT id, identity FROM range(3)"))
    assert error.error_class.startswith("UNRESOLVED_COLUMN")
    assert "`identity`" in str(error)
    shown = "".join(log.read_text() for log in cluster.directory.glob("*.log"))
    assert "`identity`" not in shown, "it is shown to who asked, not on the terminal of who runs the executor"


def test_a_path_that_is_not_there(cluster, tmp_path):
    error = failure(cluster.client.sql("SELECT * FROM t", views={"t": tmp_path / "absent.parquet"}))
    assert error.error_class == "PATH_NOT_FOUND"
    assert "absent.parquet" in str(error)


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_damaged_parquet_file(cluster, tmp_path, conf):
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"a": list(range(100_000))}), path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[200:200_000] = bytes(200_000 - 200)
    path.write_bytes(content)
    error = failure(cluster.client.sql("SELECT sum(a) FROM t GROUP BY a % 3", views={"t": path}, conf=conf))
    assert "damaged.parquet" in str(error)


def test_a_file_that_is_no_parquet_at_all(cluster, tmp_path):
    path = tmp_path / "text.parquet"
    path.write_text("this is not what you think")
    error = failure(cluster.client.sql("SELECT * FROM t", views={"t": path}))
    assert "text.parquet" in str(error)


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_udf_that_raises_is_reported_with_the_users_frames_and_hurts_no_other_job(cluster, conf):
    job = cluster.client.python(f"{JOBS}:raising", conf=conf)
    error = failure(job)
    said, traceback, *frames = str(error).splitlines()
    assert (said, traceback) == ("ValueError: seven is not allowed here", "Traceback (most recent call last):")
    places = [line for line in frames if line.startswith("  File ")]
    assert len(places) == 1
    assert re.fullmatch(r'  File ".*jobs\.py", line \d+, in reciprocal', places[0])
    assert "org.apache.spark" not in f"{error} {error.details}"
    assert str(error) in cluster.cli("job", job.id).stdout
    innocent = cluster.client.python(f"{JOBS}:captures_broadcast", conf=conf)
    assert innocent.to_arrow().column("square").to_pylist() == [i * i for i in range(10)]


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_division_by_zero_in_ansi_mode(cluster, conf):
    text = "SELECT k, sum(1 / (id - 5)) FROM (SELECT id, id % 3 AS k FROM range(10)) GROUP BY k"
    error = failure(cluster.client.sql(text, conf={"spark.sql.ansi.enabled": True, **conf}))
    assert error.error_class == "DIVIDE_BY_ZERO"
    assert "1 / (id - 5)" in str(error)


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_an_empty_table(cluster, tmp_path, conf):
    path = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), path)
    table = cluster.client.sql("SELECT b, sum(a) AS s FROM t GROUP BY b", views={"t": path}, conf=conf).to_arrow()
    assert (table.num_rows, table.column_names) == (0, ["b", "s"])


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_duplicate_column_names(cluster, conf):
    table = cluster.client.sql("SELECT 1 AS a, 2 AS a, id AS a FROM range(2) ORDER BY id", conf=conf).to_arrow()
    assert table.column_names == ["a", "a", "a"]
    assert [column.to_pylist() for column in table.columns] == [[1, 1], [2, 2], [0, 1]]


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_result_of_zero_columns(cluster, conf):
    job = cluster.client.python(f"{JOBS}:no_columns", conf=conf)
    table = job.to_arrow()
    assert (table.num_columns, job.progress().result_rows) == (0, 3)


@pytest.mark.long
def test_a_sql_text_of_five_megabytes(cluster):
    literals = ", ".join(f"({i}, 'a literal that takes some room, number {i}')" for i in range(100_000))
    text = f"SELECT count(*) AS n, max(a) AS m FROM VALUES {literals} AS t(a, b)"
    assert len(text) > 5_000_000
    assert cluster.client.sql(text).to_arrow().to_pylist() == [{"n": 100_000, "m": 99_999}]


def test_a_python_file_without_the_function(cluster):
    assert "no_such_function" in str(failure(cluster.client.python(f"{JOBS}:no_such_function")))


def test_a_function_that_returns_no_frame(cluster):
    message = str(failure(cluster.client.python(f"{JOBS}:not_a_frame")))
    assert "DataFrame" in message
    assert "int" in message


def test_a_function_that_writes_while_it_is_planned(cluster, tmp_path):
    job = cluster.client.python(f"{JOBS}:writes_while_planned", args={"path": str(tmp_path / "out")})
    assert "would change something while the job is planned" in str(failure(job))
    assert not (tmp_path / "out").exists()


def test_a_function_that_raises_while_it_is_planned(cluster):
    message = str(failure(cluster.client.python(f"{JOBS}:raises_while_planned")))
    assert "KeyError" in message
    assert "no such thing in the config" in message


def test_an_unknown_conf_of_ours(cluster):
    with pytest.raises(OnagerError, match=r"onager\.fusion\.maxBites"):
        cluster.client.sql("SELECT 1", conf={"onager.fusion.maxBites": 1}).wait(timeout=HANGS_S)


def test_an_existing_target_is_refused(cluster, tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    (target / "precious").write_text("keep me")
    job = cluster.client.sql("SELECT 1 AS a", output=target)
    message = str(failure(job))
    assert str(target) in message
    assert "--mode overwrite" in message
    assert (target / "precious").read_text() == "keep me"


def test_the_command_line_shows_the_message_and_says_so_in_its_exit_code(cluster):
    shown = cluster.cli("submit", "-e", "SELECT * FROM no_such_table")
    assert shown.returncode == 1
    assert "no_such_table" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_job_that_is_not_there(cluster):
    shown = cluster.cli("job", "never-submitted")
    assert shown.returncode == 2
    assert "never-submitted" in shown.stderr


def test_no_scheduler_at_the_address(cluster):
    shown = cluster.cli("jobs", ONAGER_SCHEDULER="127.0.0.1:1")
    assert shown.returncode == 3
    assert "127.0.0.1:1" in shown.stderr


# What operators do wrong


def refused(process, within_s: float = HANGS_S) -> str:
    """Return what *process* said when it ended with the exit code of a wrong set-up."""
    assert process.popen.wait(within_s) == 2, process.text()
    assert "Traceback" not in process.text()
    return process.text()


def scheduler_elsewhere(cluster: Cluster, tmp_path, backend: str, listen: str = "127.0.0.1:0"):
    arguments = ["scheduler", "--backend", backend, "--listen", listen, "--exchange-dir", str(tmp_path)]
    return cluster.start(tmp_path.name, arguments, {"ONAGER_SCHEDULER_HTTP_LISTEN": "127.0.0.1:0"})


def test_a_port_in_use(cluster, tmp_path):
    process = scheduler_elsewhere(cluster, tmp_path, f"leveldb:{tmp_path / 'state'}", listen=cluster.address)
    assert cluster.address in refused(process)


def test_a_state_directory_that_is_locked(cluster, tmp_path):
    message = refused(scheduler_elsewhere(cluster, tmp_path, f"leveldb:{cluster.state_dir}"))
    assert str(cluster.state_dir) in message
    assert "another process" in message.lower()


def test_a_state_directory_that_cannot_be_written(cluster, tmp_path):
    message = refused(scheduler_elsewhere(cluster, tmp_path, "leveldb:/proc/onager-state"))
    assert "/proc/onager-state" in message


def test_a_state_directory_that_is_a_file(cluster, tmp_path):
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(scheduler_elsewhere(cluster, tmp_path, f"leveldb:{tmp_path / 'file'}"))


def executor_elsewhere(cluster: Cluster, name: str, exchange_dir: Path | str, code: str = ""):
    arguments = ["executor", "--scheduler", cluster.address, "--slots", "1", "--exchange-dir", str(exchange_dir)]
    return cluster.start(name, arguments, code=code)


@pytest.mark.parametrize("where", ["/proc/onager-exchange", "a file"])
def test_an_exchange_directory_that_cannot_be_written(cluster, tmp_path, where):
    if where == "a file":
        where = str(tmp_path / "file")
        Path(where).write_text("")
    assert where in refused(executor_elsewhere(cluster, "bad-exchange", where))


@pytest.mark.long
def test_executors_of_another_protocol_or_spark_version(cluster):
    # It is refused whether its Spark is warm or not.
    other_protocol = (
        "import onager.protocol.limits as limits; limits.PROTOCOL_VERSION = 99\n"
        "import onager.executor.spark.session as session; session.warm_up = lambda _: None"
    )
    other_spark = "import pyspark; pyspark.__version__ = '3.5.1'"
    processes = [
        executor_elsewhere(cluster, name, cluster.exchange_dir, code)
        for name, code in (("other-protocol", other_protocol), ("other-spark", other_spark))
    ]
    protocol_message, spark_message = (refused(process, within_s=HANGS_S) for process in processes)
    assert "99" in protocol_message
    assert "protocol" in protocol_message
    assert "3.5.1" in spark_message
    assert "Spark" in spark_message


def test_an_executor_without_an_exchange_directory(cluster):
    shown = cluster.cli("executor", timeout_s=HANGS_S)
    assert shown.returncode == 2
    assert "--exchange-dir" in shown.stderr


def test_a_setting_that_cannot_be_used(cluster, tmp_path):
    shown = cluster.cli("executor", "--exchange-dir", str(tmp_path), "--scheduler", "nowhere", timeout_s=HANGS_S)
    assert shown.returncode == 2
    assert "nowhere" in shown.stderr
    assert sys.executable not in shown.stderr


@pytest.fixture(scope="module")
def on_small_disk(make_module_cluster):
    """A cluster whose executor has an exchange directory of 1 MiB."""
    cluster = make_module_cluster()
    cluster.environment["ONAGER_SCHEDULER_RETRY_PAUSES_S"] = "0.5,2,6"
    cluster.start_scheduler(on_small_disk=True)
    cluster.start_executor("e-1", on_small_disk=True)
    return cluster


@pytest.mark.long
def test_an_exchange_directory_that_is_full_is_waited_for_and_counts_against_nobody(on_small_disk):
    """For longer than failed tasks are retried; meanwhile the executor takes no work, and reports why."""
    cluster = on_small_disk
    ballast = Path(f"/proc/{cluster.executors['e-1'].pid}/root{cluster.exchange_dir}/ballast")
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):  # until the disk is full
        while file.write(bytes(4096)):
            pass
    try:
        rows = "SELECT sum(id) AS n FROM (SELECT id % 7 AS k, max(id) AS id FROM range(5000) GROUP BY 1)"
        job = cluster.client.sql(rows, conf=UNFUSED)
        retry = until(lambda: job.progress().retry, "a task that waits for its next try")
        assert "No space left on device" in retry.message
        assert (retry.next_try, retry.max_tries) == (1, 0)
        until(lambda: cluster.executor_states() == {"e-1": "no_space"}, "an executor without space")
        time.sleep(10)
        progress = job.progress()
        assert not progress.state.is_final
        assert progress.waiting_for.startswith("no executor takes work: e-1 has no space; exchange directory ")
        assert "free space there" in progress.waiting_for
    finally:
        ballast.unlink()
    assert job.to_arrow().to_pylist() == [{"n": sum(range(4993, 5000))}]
    assert max(task["failures"] for task in cluster.tasks(job.id).values()) == 0
    assert cluster.executor_states() == {"e-1": "alive"}


@pytest.mark.long
def test_a_job_for_which_the_exchange_directory_is_too_small_says_so_and_can_be_cancelled(on_small_disk):
    cluster = on_small_disk
    too_large = cluster.client.sql("SELECT id, repeat(uuid(), 20) AS filler FROM range(20000)", conf=UNFUSED)
    retry = until(lambda: too_large.progress().retry, "a task that waits for space")
    assert "No space left on device" in retry.message
    assert str(cluster.exchange_dir) in retry.message
    assert retry.max_tries == 0
    too_large.cancel()
    assert cluster.client.sql("SELECT count(*) AS n FROM range(10)", conf=UNFUSED).to_arrow().to_pylist() == [{"n": 10}]
