"""The flags that commands share: how they get to schedulers that want TLS or a token, and how they print."""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

C = TypeVar("C", bound=Callable[..., None])

TLS_CA_HELP: Final = "Certificates of the schedulers' authorities: encrypt."
TLS_CERT_HELP: Final = "Certificate of ours, where schedulers want one."
TLS_KEY_HELP: Final = "Key of the certificate."
TOKEN_HELP: Final = "The token, or NAME ROLE TOKEN, in a file."  # noqa: S105 - help
INSECURE_HELP: Final = "Let plaintext leave this machine."

Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler", envvar="ONAGER_SCHEDULER", metavar="H:P[,H:P]", help="Schedulers; any one that answers will do."
    ),
]
Output = Annotated[str, typer.Option("--output-format", "-o", metavar="table|json", help="How to print.")]

# As `onager.protocol.security.clients` has them; importing it would take as long as the rest of the help.
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
    """Set environment variables, for this process and its children, to what was *given*; leave the others alone."""
    for variable, value in given.items():
        if value:
            os.environ[variable] = "1" if value is True else str(value)


def connecting(command: C) -> C:
    """Give *command* the flags of the connection; each stands for the variable that `onager.connect` reads."""

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
    del with_flags.__dict__["__wrapped__"]  # whose signature is another
    return with_flags  # type: ignore[return-value]
