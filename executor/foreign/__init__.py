"""Tables of other catalogs than Onager's own: what planning asks of them, and how files become part of them."""

from onager.executor.foreign.catalogs import ForeignCatalog, parse_catalog
from onager.executor.foreign.tables import ForeignTables, PlanningTables
from onager.executor.foreign.writes import ForeignWrite, WriteLayout
