"""The flags that commands share: the connection to schedulers, TLS, tokens, and the output format."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from onager.cli.exits import one_of

C = TypeVar("C", bound=Callable[..., None])

TLS_KEY_HELP: Final = "Key of the certificate."

Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler", envvar="ONAGER_SCHEDULER", metavar="H:P[,H:P]", help="Schedulers; the first to answer is used."
    ),
]


def _checked(output: str) -> str:
    return one_of("-o", output, ("table", "json"))


Output = Annotated[
    str, typer.Option("--output-format", "-o", metavar="table|json", help="How to print.", callback=_checked)
]


def flag(
    metavar: str | None,
    text: str,
    *names: str,
    kind: type = str,
    shown: str | bool = True,
    variables: str | list[str] | None = None,
) -> Any:
    """Return the type of an optional flag with the help *text*; *shown* says in words what holds without it."""
    return Annotated[
        kind | None, typer.Option(*names, metavar=metavar, help=text, show_default=shown, envvar=variables)
    ]


def own_variables(process: str, name: str) -> list[str]:
    """Return the variables of a flag that clients also have; the one for this *process* takes precedence."""
    return [f"ONAGER_{process}_{name}", f"ONAGER_{name}"]


# The fields of `onager.protocol.security.ClientSecurity`, whose import would double the time that help takes.
def connection_flags(process: str = "") -> dict[str, Any]:
    """Return the flags of connections to schedulers; of a *process* that has settings of its own, with variables."""
    files = {
        "tls_ca": "Encrypt; trust certificates of these authorities.",
        "tls_cert": "Client certificate, if schedulers require one.",
        "tls_key": TLS_KEY_HELP,
        "auth_token_file": "File with the token, or NAME ROLE TOKEN.",
    }

    def variables(name: str) -> list[str] | None:
        return own_variables(process, name.upper()) if process else None

    flags = {name: flag("FILE", text, variables=variables(name)) for name, text in files.items()}
    text = "Allow plaintext to other machines."
    return flags | {"insecure": flag(None, text, "--insecure", kind=bool, variables=variables("insecure"))}


_FLAGS: Final = connection_flags()


def say_by_variables(**given: Path | str | bool | None) -> None:
    """Set the environment variables that were *given*, for this process and its children."""
    for variable, value in given.items():
        if value:
            os.environ[variable] = "1" if value is True else str(value)


def with_flags(flags: Mapping[str, Any]) -> Callable[[C], C]:
    """Add *flags*, types by name, to a command that takes any keyword; their values are None if they are not given."""

    def changed(command: C) -> C:
        own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
        command.__annotations__ = {**command.__annotations__, **flags}
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in flags.items()
        ]
        command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        return command

    return changed


def connecting(command: C) -> C:
    """Add the connection's flags to *command*; each sets the variable that `onager.connect` reads."""

    @functools.wraps(command)
    def connected(**given: Any) -> None:
        say_by_variables(**{f"ONAGER_{name.upper()}": given.pop(name) for name in _FLAGS})
        command(**given)

    with_flags(_FLAGS)(connected)
    del connected.__dict__["__wrapped__"]  # it has another signature
    return connected  # type: ignore[return-value]
