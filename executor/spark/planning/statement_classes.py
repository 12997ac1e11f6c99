"""The classes of Spark's parsed statements, by what they do: all that scripts are judged by."""

HARMLESS = frozenset(
    {
        "SetCommand",
        "ResetCommand",
        "SetNamespaceCommand",
        "SetCatalogAndNamespace",
        "CreateTempViewUsing",
        "CreateVariable",
        "SetVariable",
        "DropVariable",
        "RefreshTable",
        "RefreshResource",
    }
)
"""Commands that change only the job's own session."""

VARIABLES = frozenset({"CreateVariable", "DropVariable", "SetVariable"})
"""Those of them about variables."""

SHOWING = frozenset(
    {
        "DescribeColumn",
        "DescribeFunction",
        "DescribeNamespace",
        "DescribeProcedureCommand",
        "DescribeQueryCommand",
        "DescribeRelation",
        "DescribeRelationJsonCommand",
        "DescribeTablePartition",
        "ExplainCommand",
        "ListArchivesCommand",
        "ListFilesCommand",
        "ListJarsCommand",
        "ShowCatalogsCommand",
        "ShowCollationsCommand",
        "ShowColumns",
        "ShowCreateTable",
        "ShowCurrentNamespaceCommand",
        "ShowFunctions",
        "ShowNamespacesCommand",
        "ShowPartitions",
        "ShowProceduresCommand",
        "ShowTablePartition",
        "ShowTableProperties",
        "ShowTables",
        "ShowTablesExtended",
        "ShowViews",
    }
)
"""Commands that only read, and return rows like a query."""

CHANGING = frozenset(
    {
        *("CreateNamespace", "DropNamespace", "SetNamespaceProperties", "SetNamespaceLocation", "CommentOnNamespace"),
        *("UnsetNamespacePropertiesCommand", "SetNamespaceCollationCommand"),
        *("CreateTable", "CreateTableLike", "DropTable", "RenameTable", "RepairTable", "CommentOnTable"),
        *("AddColumns", "ReplaceColumns", "DropColumns", "RenameColumn", "AlterColumns", "AlterTableCollation"),
        *("AlterTableClusterBy", "SetTableProperties", "UnsetTableProperties", "SetTableSerDeProperties"),
        *("SetTableLocation", "AddPartitions", "DropPartitions", "RenamePartitions", "RecoverPartitions"),
        *("CreateView", "AlterViewAs", "AlterViewSchemaBinding", "SetViewProperties", "UnsetViewProperties"),
        *("DropView", "CreateFunction", "CreateUserDefinedFunction", "DropFunction", "RefreshFunction"),
        *("AnalyzeTable", "AnalyzeTables", "AnalyzeColumn"),
    }
)
"""Commands that change the catalog, of which each job has a copy; they move no data and no files."""

MOVING = frozenset(
    {
        *("AddPartitions", "DropPartitions", "RenamePartitions", "RecoverPartitions", "RepairTable"),
        *("SetTableLocation", "RenameTable", "TruncateTable", "TruncatePartition"),
    }
)
"""Those that change where rows of a table lie: a job that writes rows finds their places as they are in the store."""

TRUNCATING = frozenset({"TruncateTable", "TruncatePartition"})
"""Commands that do no more than that here, and remove files when Spark runs them."""

WRITING = frozenset({"CreateTableAsSelect", "InsertIntoStatement", "UnresolvedInsert"})
"""Statements that write the rows of a query into a table, with stages; unresolved: by the name in a variable."""

LATER = frozenset({"ReplaceTable", "ReplaceTableAsSelect"})
"""Commands that write a table's data."""

IGNORED = frozenset({"CacheTable", "UncacheTable", "ClearCacheCommand"})
"""Commands that only affect speed. They are ignored, since all jobs of a process share Spark's cache."""

CHANGING_ROWS = frozenset({"UpdateTable", "DeleteFromTable", "MergeIntoTable"})
"""Statements that change rows where they are."""

DATA_MODIFYING = CHANGING_ROWS | frozenset(
    {
        "InsertIntoStatement",
        "InsertIntoDir",
        "OverwriteByExpression",
        "UnresolvedInsert",
        "UnresolvedExecuteImmediate",
    }
)
"""Plans that change data but are not commands to Spark; EXECUTE IMMEDIATE may run any statement."""
LOOKED_UP = (
    HARMLESS
    | SHOWING
    | CHANGING
    | TRUNCATING
    | WRITING
    | LATER
    | IGNORED
    | DATA_MODIFYING
    | {
        *("CreateViewCommand", "CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand", "LoadData"),
        *("CacheTableAsSelect", "UnresolvedIdentifier", "UnresolvedWith"),
    }
)
"""The classes of Spark that this module recognises by name."""
