"""Names and texts as SQL has them."""


def quoted(name: str) -> str:
    """Return one name, whatever characters are in it."""
    return f"`{name.replace('`', '``')}`"


def quoted_text(text: str) -> str:
    """Return a text, whatever characters are in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
