package onager.catalog;

import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
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
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTableAsSelectPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util$;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.command.DataWritingCommand$;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a statement writes into a table: a query, and where its rows go. The catalog is changed as the statement changes it; rows that
 * replace others go to a folder that nothing else has ever had, so that readers of the old ones are not disturbed.
 *
 * @param query its plan, analyzed; null: there is nothing to write
 * @param mode as of a sink: error, overwrite or append
 * @param foreign given if it is a table of another catalog: then there is no sink yet
 */
public record TableWrite(LogicalPlan query, List<String> names, String path, String format, Map<String, String> options, String mode,
        List<String> partitionBy, Buckets buckets, OfTable table, ForeignWrite foreign) {
    static final TableWrite NOTHING = new TableWrite(null, List.of(), "", "", Map.of(), "", List.of(), null, null,
            null);

    /** The buckets of a table, by columns, and the columns by which each file is sorted. */
    public record Buckets(int count, List<String> by, List<String> sortBy) {}

    /**
     * The table whose partitions rows go into.
     *
     * @param location a URI
     * @param replaces nothing, written (the partitions that get rows) or matching (those below *within* besides)
     * @param within the path of a partition; empty: the table
     */
    public record OfTable(String key, String id, String location, String replaces, String within) {}

    /** Plans the statement *parsed*, which writes a table of *catalog*. */
    public static TableWrite of(OnagerCatalog catalog, LogicalPlan parsed) {
        LogicalPlan analyzed = CatalogSessions.analyzed(catalog.session(), parsed);
        if (analyzed instanceof InsertIntoHadoopFsRelationCommand insert && insert.catalogTable().isDefined()) {
            return inserted(catalog, insert);
        }
        if (analyzed instanceof CreateDataSourceTableAsSelectCommand made) {
            return made(catalog, made);
        }
        ForeignWrite foreign = ForeignWrite.of(analyzed);
        if (foreign != null) {
            LogicalPlan query = ((V2WriteCommand) analyzed).query();
            return new TableWrite(query, ForeignWrite.names(analyzed), "", "", Map.of(), "", List.of(), null, null, foreign);
        }
        if (analyzed instanceof V2CreateTableAsSelectPlan made && made.name() instanceof ResolvedIdentifier name
                && !CatalogV2Util$.MODULE$.isSessionCatalog(name.catalog())) {
            throw new RefusedException("it makes a table of the catalog " + name.catalog().name() + ", which is not Onager's: make it with the catalog's own "
                    + "tools, and write it with INSERT INTO or INSERT OVERWRITE");
        }
        throw new RefusedException("it writes to what is no table of files: write to a table USING parquet, orc, csv or json, or with "
                + "INSERT OVERWRITE DIRECTORY … USING");
    }

    private static TableWrite inserted(OnagerCatalog catalog, InsertIntoHadoopFsRelationCommand insert) {
        CatalogTable table = insert.catalogTable().get();
        boolean replaces = insert.mode() == SaveMode.Overwrite;
        String name = table.identifier().table();
        if (insert.ifPartitionNotExists()
                && !catalog.listPartitions(table.database(), name, Option.apply(insert.staticPartitions())).isEmpty()) {
            return NOTHING;
        }
        boolean isWhole = replaces && insert.staticPartitions().isEmpty() && !insert.dynamicPartitionOverwrite();
        boolean moves = isWhole && table.tableType().equals(CatalogTableType.MANAGED());
        CatalogTable after = moves ? catalog.emptied(table.database(), name) : catalog.written(table.database(), name);
        boolean inPartitions = !after.partitionColumnNames().isEmpty();
        String mode = moves || replaces && inPartitions ? "error" : replaces ? "overwrite" : "append";
        TableWrite write = into(after, insert.query(), Seqs.list(insert.outputColumnNames()), mode);
        if (!inPartitions) {
            return write;
        }
        String replaced = !replaces ? "nothing" : insert.dynamicPartitionOverwrite() ? "written" : "matching";
        return write.intoPartitions(catalog, after, replaced, insert.staticPartitions(), replaces && !moves);
    }

    private static TableWrite appended(OnagerCatalog catalog, CatalogTable table, LogicalPlan query, List<String> names) {
        TableWrite write = into(table, query, names, "append");
        return table.partitionColumnNames().isEmpty() ? write
                : write.intoPartitions(catalog, table, "nothing", Seqs.map(Map.of()), false);
    }

    private static TableWrite made(OnagerCatalog catalog, CreateDataSourceTableAsSelectCommand command) {
        SparkSession session = catalog.session();
        var tables = session.sessionState().catalog();
        var name = tables.qualifyIdentifier(command.table().identifier());
        if (tables.tableExists(name)) {
            if (command.mode() == SaveMode.Ignore) {
                return NOTHING;
            }
            if (command.mode() == SaveMode.Append) {
                return appended(catalog, catalog.written(name.database().get(), name.table()), command.query(), Seqs.list(command.outputColumnNames()));
            }
            throw CatalogErrors.tableExists(name.database().get(), name.table());
        }
        String mode = modeAt(session, command);
        List<String> names = Seqs.list(command.outputColumnNames());
        CatalogTable table = CatalogCodec.withSchema(command.table(), CatalogSessions.schemaOfTable(command.query(), names));
        boolean tracks = !table.partitionColumnNames().isEmpty() && session.sessionState().conf().manageFilesourcePartitions();
        tables.createTable(tracks ? CatalogCodec.withTrackedPartitions(table) : table, false, false);
        CatalogTable there = catalog.getTable(name.database().get(), name.table());
        TableWrite write = into(there, command.query(), names, mode);
        return there.partitionColumnNames().isEmpty() ? write
                : write.intoPartitions(catalog, there, "matching", Seqs.map(Map.of()), false);
    }

    /** Returns the mode in which files of a new table are written; Spark's error if there are others at a place that was given. */
    private static String modeAt(SparkSession session, CreateDataSourceTableAsSelectCommand command) {
        URI place = command.table().storage().locationUri().getOrElse(() -> null);
        if (place == null || command.table().tableType().equals(CatalogTableType.MANAGED()) || !Files.exists(Path.of(place.getPath()))) {
            return "error";
        }
        DataWritingCommand$.MODULE$.assertEmptyRootPath(place, command.mode(), session.sessionState().newHadoopConf());
        return "overwrite";
    }

    /** Returns this, into partitions of *table*; below a new folder of its own if *hasOwn*. */
    private TableWrite intoPartitions(OnagerCatalog catalog, CatalogTable table, String replaces,
            scala.collection.immutable.Map<String, String> within, boolean hasOwn) {
        OfTable of = catalog.writtenPartitions(table, replaces, within);
        String below = hasOwn ? catalog.newFolder(table) : path;
        return new TableWrite(query, names, below, format, options, mode, Seqs.list(table.partitionColumnNames()), buckets, of, null);
    }

    private static TableWrite into(CatalogTable table, LogicalPlan query, List<String> names, String mode) {
        var options = new TreeMap<>(CollectionConverters.asJava(table.storage().properties()));
        options.remove("path");
        options.remove("serialization.format");
        String format = table.provider().get().toLowerCase(Locale.ROOT);
        return new TableWrite(query, names, Folders.path(table.location()), format, options, mode, List.of(), buckets(table), null,
                null);
    }

    private static Buckets buckets(CatalogTable table) {
        if (table.bucketSpec().isEmpty()) {
            return null;
        }
        BucketSpec spec = table.bucketSpec().get();
        return new Buckets(spec.numBuckets(), Seqs.list(spec.bucketColumnNames()), Seqs.list(spec.sortColumnNames()));
    }
}
