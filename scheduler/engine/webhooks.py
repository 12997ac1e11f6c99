"""Webhooks: tells other programs that a job has ended, at least once (`onager.scheduler.engine.delivery_queue`).

Receivers know repeats by the id of the delivery, which is the job's.

Source: Standard Webhooks (the headers, what is signed, the form of the secret), so that receivers need no code of ours.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from onager.clock import Clock
from onager.errors import InvalidSettingError
from onager.ids import JobId
from onager.redaction import shown_text, without_logins
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.engine.delivery_queue import DeliveryQueue, NotDeliveredError, shown
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 4
"""Requests to each receiver at a time: one that does not answer holds up no other."""
_CODED: Final = "whsec_"
_LEAST_SECRET_BYTES: Final = 16
_OK: Final = range(200, 300)
_GONE: Final = 410
"""The receiver wants no more of it."""


class Webhooks:
    """The receivers, and what is due to them."""

    def __init__(self, settings: SchedulerSettings, heads: JobHeads, precedence: Precedence, clock: Clock) -> None:
        """Read the secret; `InvalidSettingError` for one that cannot be used."""
        self._urls = settings.webhook_urls
        self._secret = _secret(settings.webhook_secret_file) if self._urls else b""
        self._timeout_s = settings.webhook_timeout_s
        self._clock = clock
        self._requests = {url: asyncio.Semaphore(_AT_ONCE) for url in self._urls}
        give_up_s = settings.webhook_give_up_s
        self.deliveries = DeliveryQueue("is_notice_due", heads, precedence, clock, give_up_s=give_up_s, whom=self._urls)

    async def run(self) -> None:
        """Deliver for as long as the scheduler lives."""
        if not self.deliveries.is_on:
            await asyncio.Event().wait()
        import httpx

        # A redirect would carry the body to a place that the administrator has not named.
        async with httpx.AsyncClient(timeout=self._timeout_s, follow_redirects=False) as client:
            await self.deliveries.run(partial(self._post, client))

    async def _post(self, client: "httpx.AsyncClient", job_id: JobId, head: JobHead, url: str) -> None:
        import httpx

        body = _body(head)
        try:
            # The client's time limit is one for each read, and a receiver could answer a byte at a time.
            # What it says is not read. Receivers refuse a signature that is old: it is made when its turn has come.
            async with self._requests[url], asyncio.timeout(2 * self._timeout_s):
                headers = signed(self._secret, job_id, self._clock.now_ms() // 1000, body)
                headers |= {"content-type": "application/json", "user-agent": "onager"}
                async with client.stream("POST", url, content=body, headers=headers) as answer:
                    status = answer.status_code
        except TimeoutError:
            raise NotDeliveredError(f"no answer within {2 * self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDeliveredError(f"{type(error).__name__}: {error}"[:300]) from error
        if status not in _OK and status != _GONE:
            raise NotDeliveredError(f"the answer was {status}")
        log.info("webhook_delivered", job_id=job_id, url=shown(url), status=status)


def signed(secret: bytes, delivery_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery: its id, when it is tried, in seconds, and the signature of both and *body*."""
    content = f"{delivery_id}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{signature}",
    }


def _body(head: JobHead) -> bytes:
    """Return what receivers get to know about a job: what its line in a list says."""
    job: Mapping[str, Any] = {
        "job_id": head.job_id,
        "name": head.name,
        "state": head.state.value,
        "submitted_ms": head.submitted_ms,
        "started_ms": head.started_ms,
        "ended_ms": head.ended_ms,
        "error": None if head.error is None else shown_text(head.error),
        "sink_path": None if head.sink_path is None else without_logins(head.sink_path),
        "result_rows": head.result_rows,
        "session": head.session,
        "principal": head.principal,
    }
    event = {"type": "job.ended", "timestamp": head.ended_ms, "data": job}
    return json.dumps(event, ensure_ascii=False).encode(errors="replace")


def _secret(path: Path | None) -> bytes:
    """Return the secret in a file: ``whsec_`` and Base64, else the text itself."""
    setting = "webhook_secret_file"
    if path is None:
        raise InvalidSettingError(setting, "", "name a file: receivers have to know who calls them")
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettingError(setting, str(path), f"the file cannot be read ({error})") from error
    try:
        is_coded = text.startswith(_CODED)
        secret = base64.b64decode(text.removeprefix(_CODED), validate=True) if is_coded else text.encode()
    except binascii.Error as error:
        raise InvalidSettingError(setting, str(path), f"what follows {_CODED} is not Base64") from error
    if len(secret) < _LEAST_SECRET_BYTES:
        raise InvalidSettingError(setting, str(path), f"the secret is shorter than {_LEAST_SECRET_BYTES} bytes")
    return secret
