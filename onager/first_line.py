"""The logger of modules that clients import, too. Its first line imports structlog, which takes a tenth of a second."""

from typing import Any


class FirstLine:
    """Structlog's logger, found when something is logged."""

    def __getattr__(self, method: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(), method)
