"""The responses to a program's query, kept while they are sent: they are the outcome of its call."""

import base64

import structlog

from onager.errors import DiskError, PlaceNotSeenError
from onager.scheduler.connect.program_calls import ProgramCall
from onager.scheduler.connect.responses import START, id_of
from onager.scheduler.outcome_files import OutcomeWriter

log = structlog.get_logger(__name__)


class KeptResponses:
    """The responses to a query, as they were sent, without those that tell how far it is.

    Few are held until `settle`; more are written to a file as they come. Where that fails, nothing is kept: the sweep
    of retentions does it later, from the job's result (`onager.scheduler.connect.ended_calls`).
    """

    def __init__(self, call: ProgramCall, *, is_whole: bool) -> None:
        """*is_whole*: all of them come."""
        self._call = call
        self._is_whole = is_whole
        self._responses: list[bytes] = []
        self._size_bytes = 0
        """In Base64."""
        self._file: OutcomeWriter | None = None

    async def add(self, response: bytes) -> None:
        """Keep a response; `ProgramLimitError` if the program has recorded too much with it."""
        if not self._is_whole or (not self._size_bytes and id_of(response) == START):
            return
        self._size_bytes += -(-len(response) // 3) * 4
        usage, name = self._call.usage, self._call.name
        usage.check_bytes(name.program_id, name.shown, self._size_bytes)
        self._responses.append(response)
        if self._file is not None or not usage.has_room(self._size_bytes):
            await self._spill()

    async def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = await self._call.store.files.writer(self._call.program.folder)
            for response in self._responses:
                await self._file.add(response)
        except (DiskError, PlaceNotSeenError) as error:
            log.warning("responses_not_kept", call=str(self._call.name), error=str(error))
            self.close()
            self._is_whole = False
        self._responses = []

    async def settle(self) -> None:
        """Record the outcome, if all of it has come and is kept."""
        if not self._is_whole:
            return
        if self._file is None:
            packed = tuple(base64.b64encode(response).decode() for response in self._responses)
            await self._call.settle_as({"responses": packed})
            return
        try:
            await self._file.finish()
        except DiskError as error:
            log.warning("responses_not_kept", call=str(self._call.name), error=str(error))
            return
        file, self._file = self._file, None  # from now on the record may name it, also if nobody knows whether it does
        await self._call.settle_as({"responses": (), "file": file.name, "file_bytes": file.size_bytes})
        if self._call.record.file != file.name:
            file.drop()

    def close(self) -> None:
        """Remove the file unless the record may name it."""
        if self._file is not None:
            self._file.drop()
            self._file = None
