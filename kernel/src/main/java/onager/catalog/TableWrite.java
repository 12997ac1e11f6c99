package onager.catalog;

import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import onager.failure.RefusedException;
import onager.spark43.CatalogCodec;
import onager.spark43.CatalogErrors;
import onager.spark43.CatalogSessions;
import onager.values.Seqs;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a statement writes into a table: a query, and where its rows go. The catalog is changed as the statement changes it; rows that
 * replace others go to a folder that nothing else has ever had, so that readers of the old ones are not disturbed.
 *
 * @param query its plan, analyzed; null: there is nothing to write
 * @param mode as of a sink: error, overwrite or append
 */
public record TableWrite(LogicalPlan query, List<String> names, String path, String format, Map<String, String> options, String mode) {
    private static final TableWrite NOTHING = new TableWrite(null, List.of(), "", "", Map.of(), "");

    /** Plans the statement *parsed*, which writes a table of *catalog*. */
    public static TableWrite of(OnagerCatalog catalog, LogicalPlan parsed) {
        LogicalPlan analyzed = CatalogSessions.analyzed(catalog.session(), parsed);
        if (analyzed instanceof InsertIntoHadoopFsRelationCommand insert && insert.catalogTable().isDefined()) {
            return inserted(catalog, insert);
        }
        if (analyzed instanceof CreateDataSourceTableAsSelectCommand made) {
            return made(catalog, made);
        }
        throw new RefusedException("it writes to what is no table of files: write to a table USING parquet, orc, csv or json, or with "
                + "INSERT OVERWRITE DIRECTORY … USING");
    }

    private static TableWrite inserted(OnagerCatalog catalog, InsertIntoHadoopFsRelationCommand insert) {
        CatalogTable table = insert.catalogTable().get();
        boolean replaces = insert.mode() == SaveMode.Overwrite;
        boolean moves = replaces && table.tableType().equals(CatalogTableType.MANAGED());
        checkCanBeWritten(table, table.database());
        CatalogTable after = moves ? catalog.emptied(table.database(), table.identifier().table())
                : catalog.written(table.database(), table.identifier().table());
        return into(after, insert.query(), Seqs.list(insert.outputColumnNames()), moves ? "error" : replaces ? "overwrite" : "append");
    }

    private static TableWrite made(OnagerCatalog catalog, CreateDataSourceTableAsSelectCommand command) {
        SparkSession session = catalog.session();
        var tables = session.sessionState().catalog();
        var name = tables.qualifyIdentifier(command.table().identifier());
        if (tables.tableExists(name)) {
            if (command.mode() == SaveMode.Ignore) {
                return NOTHING;
            }
            throw CatalogErrors.tableExists(name.database().get(), name.table());
        }
        List<String> names = Seqs.list(command.outputColumnNames());
        CatalogTable table = CatalogCodec.withSchema(command.table(), CatalogSessions.schemaOfTable(command.query(), names));
        checkCanBeWritten(table, name.database().get());
        tables.createTable(table, false, false);
        return into(catalog.getTable(name.database().get(), name.table()), command.query(), names, "error");
    }

    private static void checkCanBeWritten(CatalogTable table, String database) {
        String name = "table " + database + "." + table.identifier().table();
        if (!table.partitionColumnNames().isEmpty()) {
            throw new RefusedException(name + " is partitioned, and statements do not write partitions yet: write with --output and "
                    + "--partition-by, and add them with MSCK REPAIR TABLE");
        }
        if (table.bucketSpec().isDefined()) {
            throw new RefusedException(name + " is CLUSTERED BY columns, and buckets are not written yet: leave that out");
        }
    }

    private static TableWrite into(CatalogTable table, LogicalPlan query, List<String> names, String mode) {
        var options = new TreeMap<>(CollectionConverters.asJava(table.storage().properties()));
        options.remove("path");
        options.remove("serialization.format");
        String format = table.provider().get().toLowerCase(Locale.ROOT);
        return new TableWrite(query, names, table.location().toString(), format, options, mode);
    }
}
