"""The conf keys ``onager.adaptive…``: jobs whose stages are laid out, and planned again, by what was measured."""

from typing import Final

from msgspec.structs import replace

from onager.errors import InvalidSettingError
from onager.execution_graph import AdaptivePolicy
from onager.job_settings import ADAPTIVE, ADAPTIVE_DEFAULT, ADAPTIVE_FUSE_BYTES, SHUFFLE_TARGET_BYTES, bytes_of
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.job_exchange import streaming_of

_CHOICES = ("on", "off", "force")
_DEFAULTS: Final = AdaptivePolicy()


def adaptive_of(spec: pb.JobSpec) -> AdaptivePolicy | None:
    """Return by which sizes the job's stages are laid out, None if they are to stay as they were planned.

    In a job whose stages run together they stay. `InvalidSettingError` for an invalid value, even if it is off.
    """
    policy = AdaptivePolicy(
        fuse_bytes=bytes_of(spec.conf, ADAPTIVE_FUSE_BYTES, _DEFAULTS.fuse_bytes),
        target_bytes=max(1, bytes_of(spec.conf, SHUFFLE_TARGET_BYTES, _DEFAULTS.target_bytes)),
    )
    text = spec.conf.get(ADAPTIVE, "")
    choice = text.strip().lower() or ADAPTIVE_DEFAULT
    if choice not in _CHOICES:
        raise InvalidSettingError(ADAPTIVE, text, "give on, off or force")
    if choice == "off" or streaming_of(spec) is not None:
        return None
    return replace(policy, replan="force" if choice == "force" else "on")
