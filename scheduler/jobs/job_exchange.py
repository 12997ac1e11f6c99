"""The conf key ``onager.exchange``: how a job's rows go from stage to stage."""

from onager.errors import InvalidSettingError
from onager.execution_graph import Streaming
from onager.job_settings import EXCHANGE
from onager.protocol import onager_pb2 as pb

_CHOICES = ("durable", "streaming")


def streaming_of(spec: pb.JobSpec) -> Streaming | None:
    """Return a `Streaming` for a job that wants its stages to run together, and None for any other.

    `InvalidSettingError` for an invalid value.
    """
    text = spec.conf.get(EXCHANGE, _CHOICES[0])
    choice = text.strip().lower()
    if choice not in _CHOICES:
        raise InvalidSettingError(EXCHANGE, text, f"give {' or '.join(_CHOICES)}")
    return Streaming() if choice == "streaming" else None
