"""Files about a job, as the command line writes them."""

import json

import pytest


@pytest.fixture
def job(scheduler):
    scheduler.exports = {
        "timeline": [b'{"position": 7}'],
        "timeline-svg": [b"<svg/>"],
        "spark-event-log": [b"{}\n", b"{}\n"],
    }
    return ("job", "j", "--scheduler", scheduler.address)


def test_files_are_written_and_named(onager, job, tmp_path):
    svg, log = tmp_path / "job.svg", tmp_path / "log"
    done = onager(*job, "--timeline", str(svg), "--spark-event-log", str(log))
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [f"{svg}: 6 B", f"{log}: 6 B"]
    assert (svg.read_text(), log.read_text()) == ("<svg/>", "{}\n{}\n")


def test_data_goes_to_a_json_file_or_to_standard_output(onager, job, tmp_path):
    onager(*job, "--timeline", str(tmp_path / "job.json"))
    assert json.loads((tmp_path / "job.json").read_text()) == {"position": 7}
    assert json.loads(onager(*job, "--timeline", "-").out) == {"position": 7}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--timeline", "job.png"), "in .svg for a picture"),
        (("--timeline", "/nowhere/job.svg"), "cannot write /nowhere/job.svg: No such file or directory"),
        (("--timeline", "-", "--spark-event-log", "-"), "only one file can go to standard output"),
    ],
)
def test_what_cannot_be_written_is_a_usage_error(onager, job, arguments, why):
    done = onager(*job, *arguments)
    assert done.code == 2
    assert why in done.err
