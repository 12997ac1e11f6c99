package onager.catalog;

import com.fasterxml.jackson.annotation.JsonIgnore;
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
import onager.values.Json;
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
 * @param sink null for a table of another catalog
 * @param foreign given if it is a table of another catalog
 */
public record TableWrite(@JsonIgnore LogicalPlan query, List<String> names, Sink sink, ForeignWrite foreign) {
    static final TableWrite NOTHING = new TableWrite(null, List.of(), null, null);

    /** The fields of the protocol's `Sink`. */
    record Sink(String path, String format, Map<String, String> options, String mode, List<String> partitionBy, Buckets buckets, OfTable table) {}

    /** The buckets of a table, by columns, and the columns by which each file is sorted. */
    record Buckets(int count, List<String> by, List<String> sortBy) {}

    /**
     * The table whose partitions rows go into.
     *
     * @param location a URI
     * @param replaces nothing, written (the partitions that get rows) or matching (those below *within* besides)
     * @param within the path of a partition; empty: the table
     */
    record OfTable(String key, String tableId, String location, String replaces, String within) {}

    /** Return all but the query, as JSON. */
    public String facts() {
        return Json.text(this);
    }

    /** Plans the statement *parsed*, which writes a table of *catalog*. */
    static TableWrite of(OnagerCatalog catalog, LogicalPlan parsed) {
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
            return new TableWrite(query, ForeignWrite.names(analyzed), null, foreign);
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
        String replaced = !replaces ? "nothing" : insert.dynamicPartitionOverwrite() ? "written" : "matching";
        TableWrite write = into(after, insert.query(), Seqs.list(insert.outputColumnNames()), mode);
        return write.intoPartitions(catalog, after, replaced, insert.staticPartitions(), replaces && !moves);
    }

    private static TableWrite made(OnagerCatalog catalog, CreateDataSourceTableAsSelectCommand command) {
        SparkSession session = catalog.session();
        var tables = session.sessionState().catalog();
        var name = tables.qualifyIdentifier(command.table().identifier());
        List<String> names = Seqs.list(command.outputColumnNames());
        if (tables.tableExists(name)) {
            if (command.mode() == SaveMode.Ignore) {
                return NOTHING;
            }
            if (command.mode() == SaveMode.Append) {
                CatalogTable table = catalog.written(name.database().get(), name.table());
                return into(table, command.query(), names, "append").intoPartitions(catalog, table, "nothing", Seqs.map(Map.of()), false);
            }
            throw CatalogErrors.tableExists(name.database().get(), name.table());
        }
        String mode = modeAt(session, command);
        CatalogTable table = CatalogCodec.withSchema(command.table(), CatalogSessions.schemaOfTable(command.query(), names));
        boolean tracks = !table.partitionColumnNames().isEmpty() && session.sessionState().conf().manageFilesourcePartitions();
        tables.createTable(tracks ? CatalogCodec.withTrackedPartitions(table) : table, false, false);
        CatalogTable there = catalog.getTable(name.database().get(), name.table());
        return into(there, command.query(), names, mode).intoPartitions(catalog, there, "matching", Seqs.map(Map.of()), false);
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

    /** Returns this, into partitions of *table*, if it has any; below a new folder of its own if *hasOwn*. */
    private TableWrite intoPartitions(OnagerCatalog catalog, CatalogTable table, String replaces,
            scala.collection.immutable.Map<String, String> within, boolean hasOwn) {
        List<String> columns = Seqs.list(table.partitionColumnNames());
        if (columns.isEmpty()) {
            return this;
        }
        OfTable of = catalog.writtenPartitions(table, replaces, within);
        String below = hasOwn ? catalog.newFolder(table) : sink.path;
        return new TableWrite(query, names, new Sink(below, sink.format, sink.options, sink.mode, columns, sink.buckets, of), null);
    }

    private static TableWrite into(CatalogTable table, LogicalPlan query, List<String> names, String mode) {
        var options = new TreeMap<>(CollectionConverters.asJava(table.storage().properties()));
        options.remove("path");
        options.remove("serialization.format");
        String format = table.provider().get().toLowerCase(Locale.ROOT);
        return new TableWrite(query, names, new Sink(Folders.path(table.location()), format, options, mode, List.of(), buckets(table), null), null);
    }

    private static Buckets buckets(CatalogTable table) {
        if (table.bucketSpec().isEmpty()) {
            return null;
        }
        BucketSpec spec = table.bucketSpec().get();
        return new Buckets(spec.numBuckets(), Seqs.list(spec.bucketColumnNames()), Seqs.list(spec.sortColumnNames()));
    }
}
