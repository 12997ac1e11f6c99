"""Checks the place where a job writes."""

from onager.errors import DiskError, InvalidRequestError
from onager.private_paths import PrivatePaths
from onager.scheduler.disk import OUTPUTS
from onager.scheduler.jobs.job_specs import check_place


async def check_place_apart(path: str, private: PrivatePaths) -> None:
    """Do what `check_place` does; `InvalidRequestError` also for a *path* whose file system does not answer.

    `DiskError` while too many others do not answer.
    """
    try:
        await OUTPUTS.call(check_place, path, private)
    except DiskError as error:
        if error.is_begun:
            raise InvalidRequestError(f"{path} cannot be written ({error}); or give another directory") from error
        raise
