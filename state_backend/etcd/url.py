"""``etcd://h:p,h:p[/namespace]?…``: where the cluster is, which user to be, and how long to wait."""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import parse_qsl, unquote

from onager.errors import InvalidSettingError

USER_VARIABLE: Final = "ONAGER_ETCD_USER"
PASSWORD_VARIABLE: Final = "ONAGER_ETCD_PASSWORD"  # noqa: S105 the variable's name
DEFAULT_NAMESPACE: Final = "onager"

_SCHEME: Final = "etcd://"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PARAMETERS: Final = ("cacert", "cert", "key", "tls", "password_file", "timeout", "compact_history")
_MIN_TIMEOUT_S: Final = 0.1
_MIN_HISTORY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: *cacert* to verify servers (`None`: gRPC's own list), *cert* and *key* to present to them."""

    cacert: Path | None
    cert: Path | None
    key: Path | None


@dataclass(frozen=True, slots=True)
class EtcdUrl:
    """How to reach a cluster; its text never shows the password."""

    endpoints: tuple[str, ...]
    """``host:port`` of each member that may be asked, at least one."""
    namespace: str = DEFAULT_NAMESPACE
    """The first part of every key; clusters of Onager that share an etcd have one each."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    timeout_s: float = 5.0
    """The longest that one call may take, with all attempts on all endpoints."""
    compact_history_s: float | None = 120.0
    """How long the store's history is kept, which limits how far back a watch may reach; `None`: others compact."""

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str] | None = None) -> "EtcdUrl":
        """Read ``etcd://[user@]h:p[,h:p…][/namespace][?parameter=value&…]``.

        Parameters: ``cacert``, ``cert``, ``key`` (PEM files; any of them, or ``tls=on``, means TLS),
        ``password_file``, ``timeout`` (such as ``5s``) and ``compact_history`` (such as ``2m``, or ``off``).
        The user may be in the URL or in ``ONAGER_ETCD_USER``, the password in ``ONAGER_ETCD_PASSWORD`` or in
        the file. `InvalidSettingError`, which never shows a password, for what cannot be used.
        """
        environ = os.environ if environ is None else environ
        return _Parser(text).url(environ)


def without_password(text: str) -> str:
    """Return a URL, valid or not, without anything in it that may be a password."""
    start = text.find("://") + 3 if "://" in text else 0
    user, colon, rest = text[start:].partition(":")
    if not colon or "@" not in rest:
        return text
    return f"{text[:start]}{user}:***@{rest.rpartition('@')[2]}"


class _Parser:
    def __init__(self, text: str) -> None:
        shown, has_query, _ = without_password(text).partition("?")
        self._shown = f"{shown}?…" if has_query else shown
        if not text.startswith(_SCHEME):
            self._refuse(f"write {_SCHEME}HOST:PORT[,HOST:PORT…][/NAMESPACE]")
        rest, _, query = text.removeprefix(_SCHEME).partition("?")
        authority, slash, path = rest.partition("/")
        userinfo, _, self._hosts = authority.rpartition("@")
        self._namespace = unquote(path) if slash else ""
        # A password may contain any character: text that was split at one of them must not be shown.
        is_cut = "@" in self._namespace or ("@" in rest + query and "@" not in authority and not self._has_endpoints())
        if ":" in userinfo or is_cut:
            self._refuse(f"a password does not belong into a URL: set {PASSWORD_VARIABLE}, or give ?password_file=FILE")
        self._user = unquote(userinfo) or None
        self._parameters = self._read_query(query)

    def url(self, environ: Mapping[str, str]) -> EtcdUrl:
        user = self._user or environ.get(USER_VARIABLE) or None
        password = self._password(environ)
        if user is not None and password is None:
            self._refuse(f"user {user} needs a password: set {PASSWORD_VARIABLE}, or give ?password_file=FILE")
        if user is None and "password_file" in self._parameters:
            self._refuse(f"password_file needs a user: give etcd://USER@…, or set {USER_VARIABLE}")
        return EtcdUrl(
            endpoints=self._endpoints(),
            namespace=self._checked_namespace(),
            user=user,
            password=password if user is not None else None,
            tls=self._tls(),
            timeout_s=self._duration("timeout", 5.0, _MIN_TIMEOUT_S),
            compact_history_s=None
            if self._parameters.get("compact_history") == "off"
            else self._duration("compact_history", 120.0, _MIN_HISTORY_S),
        )

    def _has_endpoints(self) -> bool:
        return all(_is_endpoint(part.strip()) for part in self._hosts.split(","))

    def _endpoints(self) -> tuple[str, ...]:
        endpoints = tuple(part.strip() for part in self._hosts.split(","))
        for endpoint in endpoints:
            if not _is_endpoint(endpoint):
                self._refuse(f"{endpoint!r} is not host:port, such as 127.0.0.1:2379 or [::1]:2379")
        if len(set(endpoints)) < len(endpoints):
            self._refuse("an endpoint is named twice")
        return endpoints

    def _checked_namespace(self) -> str:
        namespace = self._namespace.strip("/") or DEFAULT_NAMESPACE
        if "/" in namespace or not namespace.isprintable():
            self._refuse(f"namespace {namespace!r} must be one printable name without slashes")
        return namespace

    def _tls(self) -> Tls | None:
        files: dict[str, Path] = {
            name: Path(self._parameters[name]) for name in ("cacert", "cert", "key") if name in self._parameters
        }
        if ("cert" in files) != ("key" in files):
            self._refuse("cert and key go together: give both, or neither")
        switch = self._parameters.get("tls", "on" if files else "off")
        if switch not in {"on", "off"} or (switch == "off" and files):
            self._refuse("tls is on or off, and on where cacert, cert or key are given")
        for name, path in files.items():
            self._text_of(name, path)
        if switch == "off":
            return None
        self._check_pem(files)
        return Tls(files.get("cacert"), files.get("cert"), files.get("key"))

    def _check_pem(self, files: Mapping[str, Path]) -> None:
        """Check the files, since gRPC would only say that the handshake failed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if "cacert" in files:
                context.load_verify_locations(files["cacert"])
        except ssl.SSLError:
            self._refuse(f"cacert {files['cacert']} holds no certificate in PEM form")
        try:
            if "cert" in files:
                # An empty password fails for an encrypted key, instead of asking at the terminal.
                context.load_cert_chain(files["cert"], files["key"], password="")
        except ssl.SSLError as error:
            why = (
                "do not belong together"
                if error.reason == "KEY_VALUES_MISMATCH"
                else "are not both in PEM form, unlocked"
            )
            self._refuse(f"cert {files['cert']} and key {files['key']} {why}")

    def _password(self, environ: Mapping[str, str]) -> str | None:
        if "password_file" in self._parameters:
            return self._text_of("password_file", Path(self._parameters["password_file"])).rstrip("\r\n")
        return environ.get(PASSWORD_VARIABLE)

    def _text_of(self, name: str, path: Path) -> str:
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            self._refuse(f"{name} {path} cannot be read: {why}")

    def _duration(self, name: str, default_s: float, least_s: float) -> float:
        text = self._parameters.get(name)
        if text is None:
            return default_s
        match = _DURATION.fullmatch(text)
        seconds = float(match[1]) * _UNITS_S[match[2]] if match else 0.0
        if seconds < least_s:
            self._refuse(f"{name}={text} must be a duration of at least {least_s:g}s, such as 5s, 500ms or 2m")
        return seconds

    def _read_query(self, query: str) -> dict[str, str]:
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in _PARAMETERS:
                which = "of that name" if "@" in query else repr(name)
                self._refuse(f"there is no parameter {which}; use {', '.join(_PARAMETERS)}")
            if not value or name in parameters:
                self._refuse(f"parameter {name} needs one value")
            parameters[name] = value
        return parameters

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidSettingError("--backend", self._shown, why)


def _is_endpoint(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    is_port = bool(colon) and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16
    return is_port and bool(host) and (":" not in host or (host[0] == "[" and host[-1] == "]"))
