"""The conf key ``onager.exchange``: how a job's rows go from stage to stage."""

from onager.errors import InvalidSettingError
from onager.execution_graph import PIPELINED_MAJOR, Pipeline
from onager.job_settings import EXCHANGE
from onager.protocol import onager_pb2 as pb

_CHOICES = ("durable", "streaming")


def pipeline_of(spec: pb.JobSpec, writes_major: int = PIPELINED_MAJOR, at_ms: int = 0) -> Pipeline | None:
    """Return the pipeline of a job whose stages shall run together, or None if it did not ask for that.

    The stages do not run together while some scheduler could not read such records (all read versions up to
    *writes_major*). `InvalidSettingError` for an invalid value.
    """
    text = spec.conf.get(EXCHANGE, _CHOICES[0])
    choice = text.strip().lower()
    if choice not in _CHOICES:
        raise InvalidSettingError(EXCHANGE, text, f"give {' or '.join(_CHOICES)}")
    if choice != "streaming":
        return None
    if writes_major < PIPELINED_MAJOR:
        return Pipeline(reason="a scheduler of an earlier version takes part, which cannot do it", abandoned_ms=at_ms)
    return Pipeline()
