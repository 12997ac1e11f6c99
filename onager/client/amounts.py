"""Amounts in words, for people."""


def size(count: int) -> str:
    """Return a number of bytes for people: ``0 B``, ``12.3 MiB``, as the page does (`page/src/lib/format.js`)."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024 or unit == "PiB":  # noqa: PLR2004 - what a unit is
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def seconds(ms: float) -> str:
    """Return a duration in milliseconds for people: ``0.42 s``, ``12.3 s``, ``4 min 05 s``."""
    if ms < 10_000:  # noqa: PLR2004
        return f"{ms / 1000:.2f} s"
    if ms < 100_000:  # noqa: PLR2004
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(round(ms / 1000), 60)
    return f"{minutes:,} min {rest:02} s"
