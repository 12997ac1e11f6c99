"""The logger of modules that clients import, too: importing structlog takes a tenth of a second."""

from typing import Any


class LazyLogger:
    """Structlog's logger, which is imported when something is logged."""

    def __getattr__(self, method: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(), method)
