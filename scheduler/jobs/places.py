"""Checks the place where a job writes."""

from onager.errors import DiskError, InvalidRequestError
from onager.private_paths import PrivatePaths
from onager.scheduler import timing
from onager.scheduler.disk import EXCHANGE, OUTPUTS
from onager.scheduler.jobs.job_specs import check_place


async def check_place_apart(path: str, private: PrivatePaths) -> None:
    """Do what `check_place` does; `InvalidRequestError` also for a *path* whose file system does not answer.

    `DiskError` while too many others do not answer, and while the exchange directory does not, either: then it is this
    machine that gets no answers, and another scheduler can tell.
    """
    within_s = timing.DISK_HANGS_S if EXCHANGE.hangs else timing.DISK_S
    try:
        await OUTPUTS.call(check_place, path, private, within_s=within_s)
    except DiskError as error:
        if error.is_begun and not EXCHANGE.hangs:
            raise InvalidRequestError(f"{path} cannot be written ({error}); or give another directory") from error
        raise
