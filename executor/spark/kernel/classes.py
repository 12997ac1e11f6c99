"""Classes of the kernel that Spark makes by their names, or that errors are told from."""

from typing import Final

KERNEL: Final = "onager.Kernel"
"""The facade of an executor."""
GUARD: Final = "onager.plan.Guard"
"""The Spark session extension that keeps SQL from private files and from Java methods."""
FOREIGN_TABLES: Final = "onager.catalog.ForeignTables"
"""The Spark session extension that reads tables of other catalogs as relations of their files."""
FOREIGN_CATALOG: Final = "onager.catalog.ForeignCatalog"
"""A catalog other than Onager's own, as Spark sees it."""
REFUSED: Final = "onager.failure.RefusedException"
"""The exception with which the kernel says what it will not do, in words for people."""
CATALOG_MOVED: Final = "onager.catalog.CatalogMoved"
"""The exception with which the kernel says that what a planning has read of the catalog has changed meanwhile."""
CLUSTER_PLUGIN: Final = "onager.jobs.UnwantedTasks"
"""The Spark plugin for a cluster's processes with which a task asks whether it is still wanted."""
