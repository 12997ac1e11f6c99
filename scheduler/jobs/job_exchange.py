"""What a job's conf says of how its rows go from stage to stage: ``onager.exchange``."""

from onager.errors import InvalidSettingError
from onager.execution_graph import PIPELINED_MAJOR, Pipeline
from onager.job_settings import EXCHANGE
from onager.protocol import onager_pb2 as pb

_CHOICES = ("durable", "streaming")


def pipeline_of(spec: pb.JobSpec, writes_major: int = PIPELINED_MAJOR, at_ms: int = 0) -> Pipeline | None:
    """Return whether the job's stages shall run together, and None for one that did not ask for it.

    They do not where some scheduler, all of which read records up to *writes_major*, would not know what to make of
    that. `InvalidSettingError` for a value that is none.
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
