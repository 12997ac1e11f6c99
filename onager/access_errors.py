"""The errors by which a scheduler refuses somebody: a branch of the tree in `onager.errors`."""

from typing import Final

from onager.errors import OnagerError

_NAME_CHARS: Final = 200


class AuthenticationError(OnagerError):
    """A scheduler refuses us, because it does not know who we are."""


class TokenMissingError(AuthenticationError):
    """The call carried no token, and the scheduler requires one."""

    def __init__(self) -> None:
        super().__init__("the scheduler wants a token: give --auth-token-file FILE (ONAGER_AUTH_TOKEN_FILE)")


class TokenRefusedError(AuthenticationError):
    """The call carried a token that the scheduler does not know."""

    def __init__(self) -> None:
        super().__init__(
            "the scheduler does not have the token that it was shown: the first line of --auth-token-file "
            "(ONAGER_AUTH_TOKEN_FILE) here must be one of the lines there"
        )


class RoleRefusedError(AuthenticationError):
    """The call carried a token whose role may not call the method."""

    def __init__(self, name: str, role: str, method: str, takes: list[str]) -> None:
        super().__init__(
            f"the token {name} has the role {role}, and {method.rpartition('.')[2]} takes "
            f"{' or '.join(takes) or 'none'}: call it with a token of that role"
        )
        self.name = name
        self.role = role
        self.method = method


class HostRefusedError(AuthenticationError):
    """A request over HTTP names a host that is not this scheduler, as a page does that had its own name rebound."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"the request is for the host {host[:_NAME_CHARS]!r}, which this scheduler does not know as its name: "
            "call it by an address, or start it with ONAGER_SCHEDULER_HTTP_NAMES=NAME"
        )
        self.host = host


class OriginRefusedError(AuthenticationError):
    """A request over HTTP that changes something was made by a page of another origin."""

    def __init__(self, origin: str, host: str) -> None:
        source = f"comes from {origin[:_NAME_CHARS]!r}" if origin else "does not say where it comes from"
        super().__init__(
            f"the request {source}, and only pages of {host[:_NAME_CHARS]!r} may change something here: "
            "use a token instead of a cookie, or start the scheduler with ONAGER_SCHEDULER_HTTP_NAMES=NAME"
        )
        self.origin = origin


class SessionEndedError(AuthenticationError):
    """The cookie has expired, or the token that it was made with is not valid any more."""

    def __init__(self) -> None:
        super().__init__("the login has ended, or its token is not valid any more: log in again")


class LoginsLimitedError(AuthenticationError):
    """There were too many logins with wrong tokens."""

    retryable = True

    def __init__(self, again_s: int) -> None:
        super().__init__(f"there were too many logins with wrong tokens: try again in {again_s} s")
        self.again_s = again_s
