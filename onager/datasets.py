"""The formats of datasets."""

from typing import Final

VIEW_FORMATS: Final = ("parquet", "csv", "json", "orc", "text")
"""Those that a view can be of."""
SINK_FORMATS: Final = ("parquet", "csv", "json", "orc", "text", "xml")
"""Those that a result can be written in."""
