"""The flags that commands share: the connection to schedulers, TLS, tokens, and the output format."""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

C = TypeVar("C", bound=Callable[..., None])

TLS_CA_HELP: Final = "Encrypt; trust certificates of these authorities."
TLS_CERT_HELP: Final = "Client certificate, if schedulers require one."
TLS_KEY_HELP: Final = "Key of the certificate."
TOKEN_HELP: Final = "File with the token, or NAME ROLE TOKEN."  # noqa: S105 - help
INSECURE_HELP: Final = "Allow plaintext to other machines."

Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler", envvar="ONAGER_SCHEDULER", metavar="H:P[,H:P]", help="Schedulers; the first to answer is used."
    ),
]
Output = Annotated[str, typer.Option("--output-format", "-o", metavar="table|json", help="How to print.")]

# The same as in `onager.protocol.security.clients`, whose import would double the time that help takes.
_FLAGS: Final[dict[str, tuple[str, Any]]] = {
    "tls_ca": ("ONAGER_TLS_CA", Annotated[Path | None, typer.Option(metavar="FILE", help=TLS_CA_HELP)]),
    "tls_cert": ("ONAGER_TLS_CERT", Annotated[Path | None, typer.Option(metavar="FILE", help=TLS_CERT_HELP)]),
    "tls_key": ("ONAGER_TLS_KEY", Annotated[Path | None, typer.Option(metavar="FILE", help=TLS_KEY_HELP)]),
    "auth_token_file": (
        "ONAGER_AUTH_TOKEN_FILE",
        Annotated[Path | None, typer.Option(metavar="FILE", help=TOKEN_HELP)],
    ),
    "insecure": ("ONAGER_INSECURE", Annotated[bool, typer.Option("--insecure", help=INSECURE_HELP)]),
}


def say_by_variables(**given: Path | bool | None) -> None:
    """Set the environment variables that were *given*, for this process and its children."""
    for variable, value in given.items():
        if value:
            os.environ[variable] = "1" if value is True else str(value)


def connecting(command: C) -> C:
    """Add the connection's flags to *command*; each sets the variable that `onager.connect` reads."""

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        say_by_variables(**{variable: given.pop(name) for name, (variable, _) in _FLAGS.items()})
        command(**given)

    own = inspect.signature(command)
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "insecure" else None, annotation=kind
        )
        for name, (_, kind) in _FLAGS.items()
    ]
    with_flags.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    with_flags.__annotations__ = {**command.__annotations__, **{name: kind for name, (_, kind) in _FLAGS.items()}}
    del with_flags.__dict__["__wrapped__"]  # it has another signature
    return with_flags  # type: ignore[return-value]
