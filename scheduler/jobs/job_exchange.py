"""The conf key ``onager.exchange``: how a job's rows go from stage to stage."""

from onager.errors import InvalidSettingError
from onager.execution_graph import Pipeline
from onager.job_settings import EXCHANGE
from onager.protocol import onager_pb2 as pb

_CHOICES = ("durable", "streaming")


def pipeline_of(spec: pb.JobSpec) -> Pipeline | None:
    """Return the pipeline of a job whose stages shall run together, or None if it did not ask for that.

    `InvalidSettingError` for an invalid value.
    """
    text = spec.conf.get(EXCHANGE, _CHOICES[0])
    choice = text.strip().lower()
    if choice not in _CHOICES:
        raise InvalidSettingError(EXCHANGE, text, f"give {' or '.join(_CHOICES)}")
    return Pipeline() if choice == "streaming" else None
