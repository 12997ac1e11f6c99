"""Names in SQL."""


def quoted(name: str) -> str:
    """Return one name as SQL has it, whatever characters are in it."""
    return f"`{name.replace('`', '``')}`"
