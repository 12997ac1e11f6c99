"""Settings of sessions: what a session has set, over what every session has by default; Spark checks what is set."""

from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onager.errors import InvalidSettingError
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import ConfigResponse
from onager.scheduler.connect.failures import ConnectError, failed
from onager.scheduler.connect.sessions import Session
from onager.scheduler.jobs.job_specs import check_spec

Describe = Callable[[], Awaitable[pb.ConnectDefaults]]


class Defaults:
    """What Spark has by default, asked once."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._defaults: pb.ConnectDefaults | None = None
        self._conf: dict[str, str] = {}
        """Their values as a dict, which is read much faster than a map of a message."""
        self._fixed: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()

    async def get(self) -> pb.ConnectDefaults:
        """Return the table."""
        if self._defaults is None:
            self._defaults = await self._describe()
            self._conf = dict(self._defaults.conf)
            self._fixed, self._known = frozenset(self._defaults.fixed), frozenset(self._defaults.known)
        return self._defaults

    async def read(self, session: Session, operation: Any) -> Any:  # noqa: C901 - one case for each kind
        """Return the answer to an operation that changes nothing."""
        defaults = await self.get()
        own = session.message.conf
        answer, conf = ConfigResponse(), ChainMap(dict(own), self._conf)
        match operation.WhichOneof("op_type"):
            case "get":
                for key in operation.get.keys:
                    if key not in conf and key not in self._known:
                        raise _not_found(key)
                    _add(answer, key, conf.get(key))
            case "get_option":
                for key in operation.get_option.keys:
                    _add(answer, key, conf.get(key))
            case "get_with_default":
                for pair in operation.get_with_default.pairs:
                    is_set = pair.key in own or pair.key in defaults.set
                    default = pair.value if pair.HasField("value") else None
                    _add(answer, pair.key, conf.get(pair.key) if is_set else default)
            case "get_all":
                prefix = operation.get_all.prefix
                for key in sorted(key for key in conf if key.startswith(prefix)):
                    _add(answer, key.removeprefix(prefix), conf[key])
            case "is_modifiable":
                for key in operation.is_modifiable.keys:
                    _add(answer, key, "true" if self._is_modifiable(defaults, key) else "false")
        return answer

    def _is_modifiable(self, defaults: pb.ConnectDefaults, key: str) -> bool:
        return (key in defaults.conf or key in self._known) and key not in self._fixed


def check_settings(conf: Mapping[str, str]) -> None:
    """Raise `ConnectError` for a setting of Onager's own that cannot be."""
    own = {key: value for key, value in conf.items() if key.startswith(PREFIX)}
    if not own:
        return
    try:
        check_spec(pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), conf=own))
    except InvalidSettingError as error:
        raise failed("INVALID_CONF_VALUE", "22022", str(error)) from error


def _add(answer: Any, key: str, value: str | None) -> None:
    pair = answer.pairs.add(key=key)
    if value is not None:
        pair.value = value


def _not_found(key: str) -> ConnectError:
    why = f'The SQL config "{key}" cannot be found. Please verify that the config exists.'
    classes = "org.apache.spark.SparkNoSuchElementException", "java.util.NoSuchElementException"
    return failed("SQL_CONF_NOT_FOUND", "42K0I", why, classes=classes)
