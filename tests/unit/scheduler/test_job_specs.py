import pytest

from onager.errors import InvalidRequestError, InvalidSettingError, RequestTooLargeError, VersionMismatchError
from onager.execution_graph import SpeculationPolicy, Streaming
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_JOB_SPEC_BYTES, PROTOCOL_VERSION
from onager.scheduler.jobs.job_exchange import streaming_of
from onager.scheduler.jobs.job_specs import check_submission, decode_spec, encode_spec, weight_of
from onager.scheduler.jobs.job_speculation import speculation_of


def request(job_id="job-1", **spec):
    given = {"sql": pb.SqlScript(text="SELECT 1")} if not {"sql", "python"} & set(spec) else {}
    return pb.SubmitJobRequest(job_id=job_id, spec=pb.JobSpec(**given, **spec), protocol_version=PROTOCOL_VERSION)


def test_an_ordinary_job_passes():
    check_submission(
        request(
            views=[pb.View(name="t", path="/t.parquet")],
            conf={"spark.sql.ansi.enabled": "true", "onager.weight": "2.5"},
            sink=pb.Sink(path="/out", format="parquet"),
        )
    )
    check_submission(request(sql=pb.SqlScript(text="SELECT '" + "x" * 5_000_000 + "'")))


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        (request("Not An Id"), InvalidRequestError, "not a job id"),
        (request(""), InvalidRequestError, "not a job id"),
        (request(sql=pb.SqlScript(text=" ; ")), InvalidRequestError, "SQL text is empty"),
        (request(python=pb.PythonFunction()), InvalidRequestError, "no code"),
        (request(python=pb.PythonFunction(source=b"x", arguments_json="[1]")), InvalidRequestError, "JSON object"),
        (request(python=pb.PythonFunction(source=b"x", arguments_json="{")), InvalidRequestError, "not JSON"),
        (pb.SubmitJobRequest(job_id="a"), InvalidRequestError, "nothing to run"),
        (request(name="n" * 257), InvalidRequestError, "256"),
        (request(conf={"sql.ansi": "1"}), InvalidSettingError, "spark"),
        (request(conf={"onager.weight": "heavy"}), InvalidSettingError, "above 0"),
        (request(conf={"onager.weight": "-1"}), InvalidSettingError, "above 0"),
        (request(conf={"onager.fusion.maxBites": "1"}), InvalidSettingError, "is onager.fusion.maxBytes meant"),
        (request(conf={"onager.nonsense": "1"}), InvalidSettingError, "a job knows onager.fusion.maxBytes, "),
        (request(conf={"onager.exchange": "fast"}), InvalidSettingError, "give durable or streaming"),
        (request(conf={"onager.speculation": "perhaps"}), InvalidSettingError, "give true or false"),
        (request(conf={"onager.speculation.multiplier": "0.5"}), InvalidSettingError, "number from 1"),
        (request(conf={"onager.speculation.quantile": "nan"}), InvalidSettingError, "number from 0 to 1"),
        (request(conf={"onager.speculation.min-task-runtime-ms": "-5"}), InvalidSettingError, "whole milliseconds"),
        (request(conf={"onager.speculation.min-task-runtime-ms": "9" * 5000}), InvalidSettingError, "whole"),
        (request(conf={"onager.speculation.quantil": "0.5"}), InvalidSettingError, "onager.speculation.quantile"),
        (request(views=[pb.View(name="t")]), InvalidRequestError, "name and a path"),
        (request(views=[pb.View(name="t", path="p", format="xls")]), InvalidRequestError, "xls"),
        (request(views=[pb.View(name="t", path="p"), pb.View(name="T", path="q")]), InvalidRequestError, "twice"),
        (request(sink=pb.Sink(format="parquet")), InvalidRequestError, "path"),
        (request(sink=pb.Sink(path="/o\0", format="csv")), InvalidRequestError, "the output has a NUL character"),
        (request(views=[pb.View(name="t", path="p\0q")]), InvalidRequestError, "view t has a NUL character"),
        (request(python=pb.PythonFunction(source=b"x", file_name="a\0b")), InvalidRequestError, "NUL character"),
        (request(sink=pb.Sink(path="/o", format="avro")), InvalidRequestError, "avro"),
        (request(sink=pb.Sink(path="/o", format="csv", foreign="{}")), InvalidRequestError, "only a table has"),
        (request(sink=pb.Sink(path="/o", format="csv", mode="merge")), InvalidRequestError, "merge"),
        (request(sql=pb.SqlScript(text="x" * (MAX_JOB_SPEC_BYTES + 1))), RequestTooLargeError, "limit"),
    ],
)
def test_what_can_never_work_is_reported(bad, error, text):
    with pytest.raises(error, match=text):
        check_submission(bad)


def test_a_job_streams_when_it_asks_for_it():
    assert streaming_of(request().spec) is None
    assert streaming_of(request(conf={"onager.exchange": "durable"}).spec) is None
    assert streaming_of(request(conf={"onager.exchange": " Streaming"}).spec) == Streaming()


def test_speculation_is_off_unless_asked_for():
    assert speculation_of(request().spec) is None
    assert speculation_of(request(conf={"onager.speculation": "false"}).spec) is None
    assert speculation_of(request(conf={"onager.speculation.quantile": "0.5"}).spec) is None
    assert speculation_of(request(conf={"onager.speculation": "True"}).spec) == SpeculationPolicy()
    conf = {
        "onager.speculation": "true",
        "onager.speculation.multiplier": "3",
        "onager.speculation.quantile": "0.9",
        "onager.speculation.min-task-runtime-ms": "5000",
    }
    policy = SpeculationPolicy(multiplier=3.0, quantile=0.9, min_task_runtime_ms=5_000)
    assert speculation_of(request(conf=conf).spec) == policy


def test_another_protocol_is_reported():
    with pytest.raises(VersionMismatchError, match="version 9"):
        check_submission(pb.SubmitJobRequest(job_id="a", protocol_version=9))


def test_a_spec_survives_and_equal_ones_have_equal_bytes():
    spec = pb.JobSpec(
        python=pb.PythonFunction(pickled=b"\x00\xff", function="f"),
        conf={"spark.b": "2", "spark.a": "é"},
        py_files=[pb.PyFile(name="m.py", content=b"x")],
    )
    again = pb.JobSpec(
        python=pb.PythonFunction(pickled=b"\x00\xff", function="f"),
        conf={"spark.a": "é", "spark.b": "2"},
        py_files=[pb.PyFile(name="m.py", content=b"x")],
    )
    assert decode_spec(encode_spec(spec)) == spec
    assert encode_spec(spec) == encode_spec(again)
    assert weight_of(spec) == 1
