package onager.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.plan.NotesReads;
import onager.spark43.CatalogCodec;
import onager.spark43.CatalogErrors;
import onager.spark43.CatalogSessions;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogFunction;
import org.apache.spark.sql.catalyst.catalog.CatalogStatistics;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.util.StringUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.ThreadUtils;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * The catalog of one planning: a private copy of what the store has, read as it is needed. Changes stay here until `changes` tells them;
 * no file is made, moved or removed, and no directory.
 */
public final class OnagerCatalog extends CatalogOfPartitions implements NotesReads {
    private static final String GLOBAL_TEMPORARY = "global_temp";
    private static final Pattern NAME = Pattern.compile("\\w+"); // Spark makes no other databases and tables
    /** In {@code FROM csv.`/a/path`}, these are no databases. */
    private static final Set<String> FORMATS = Set.of("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml");

    /** One that is ready for the next planning: to make it takes as long as a small query. */
    private static final AtomicReference<OnagerCatalog> SPARE = new AtomicReference<>();
    private static final ExecutorService MAKER = ThreadUtils.newDaemonSingleThreadExecutor("onager makes the next session");

    private final SparkSession base;
    private final Folders folders = new Folders();
    private final URI warehouse;
    private final SparkSession session;
    /** URIs of tables that were looked up, and of what queries read besides. */
    private final Set<String> places = new ConcurrentSkipListSet<>();

    /** Returns a catalog with a session over it, like those of *base*; databases lie in the same warehouse. */
    public static OnagerCatalog next(SparkSession base) {
        OnagerCatalog spare = SPARE.getAndSet(null);
        return spare != null && spare.base == base && !base.sparkContext().isStopped() ? spare : new OnagerCatalog(base);
    }

    private OnagerCatalog(SparkSession base) {
        this.base = base;
        this.warehouse = CatalogSessions.warehouse(base);
        this.session = CatalogSessions.open(base, this);
    }

    // ------------------------------------------------------------ for Python

    @Override
    public SparkSession session() {
        return session;
    }

    /** Waits for a request to read, and returns it as JSON: {keys, prefixes, keys_only, start_after}; null after `close`. */
    public String take() throws InterruptedException {
        return reads.take();
    }

    /** Answers the request that was taken last: {records: [{key, value, revision}], truncated}, a value being text or absent. */
    public void answer(String text) {
        reads.answer(text);
    }

    /** Ends all reads. */
    public void end() {
        reads.close();
    }

    /** Ends the use of the session, has the next one made, and returns where lies what has been read or looked up, one URI a line. */
    public String close() {
        reads.close();
        CatalogSessions.release(session);
        MAKER.submit(this::prepare); // should it fail, the next one to need it tries itself, and learns why
        return String.join("\n", places);
    }

    private void prepare() {
        if (SPARE.get() == null && !base.sparkContext().isStopped()) {
            OnagerCatalog made = new OnagerCatalog(base);
            CatalogSessions.warmUp(made.session);
            SPARE.set(made);
        }
    }

    /** Returns Python's answer to what is asked of another catalog. */
    synchronized JsonNode foreign(Map<String, Object> request) {
        return reads.read(Map.of("foreign", request));
    }

    /** Sets whether statements may change the catalog. */
    public synchronized void allowChanges(boolean may) {
        mayChange = may;
    }

    /** See `isOfOneRevision`; *query* is planned before, which may read more. */
    public boolean isOfOneRevision(Dataset<Row> query) {
        query.queryExecution().executedPlan();
        return isOfOneRevision();
    }

    /** See `Records.isOfOneRevision`. */
    public synchronized boolean isOfOneRevision() {
        return records.isOfOneRevision();
    }

    /** Returns what has changed, as JSON; see `Changes`. */
    public synchronized String changes() {
        return Json.text(Changes.of(slots, folders));
    }

    @Override
    public void noteRead(Stream<Path> roots) {
        roots.forEach(path -> places.add(path.toString()));
    }

    private CatalogTable noted(CatalogTable table) {
        noteRead(table.storage().locationUri().isEmpty() ? Stream.of() : Stream.of(new Path(table.location())));
        return table;
    }

    // ------------------------------------------------------------ databases

    @Override
    public synchronized void createDatabase(CatalogDatabase made, boolean ignoreIfExists) {
        checkMayChange();
        if (FORMATS.contains(made.name())) {
            throw new RefusedException(made.name() + " is a format of files, which FROM " + made.name()
                    + ".`path` reads: give the database another name");
        }
        if (databaseExists(made.name())) {
            if (!ignoreIfExists) {
                throw CatalogErrors.databaseExists(made.name());
            }
            return;
        }
        database(made.name()).set(made);
    }

    @Override
    public synchronized void dropDatabase(String name, boolean ignoreIfNotExists, boolean cascade) {
        checkMayChange();
        if (!databaseExists(name)) {
            if (!ignoreIfNotExists) {
                throw CatalogErrors.noDatabase(name);
            }
            return;
        }
        List<String> tables = names("tables", name);
        List<String> functions = names("functions", name);
        if (!cascade && !(tables.isEmpty() && functions.isEmpty())) {
            throw CatalogErrors.databaseNotEmpty(name);
        }
        tableSlots(name, tables).forEach(this::drop);
        functions.forEach(each -> function(name, each).set(null));
        database(name).set(null);
    }

    @Override
    public synchronized void alterDatabase(CatalogDatabase to) {
        checkMayChange();
        requireDbExists(to.name());
        database(to.name()).set(to);
    }

    @Override
    public synchronized CatalogDatabase getDatabase(String name) {
        requireDbExists(name);
        Object found = database(name).now;
        return found == null ? CatalogCodec.database(name, "default database", warehouse) : (CatalogDatabase) found;
    }

    @Override
    public synchronized boolean databaseExists(String name) {
        boolean canBe = NAME.matcher(name).matches() && !name.equals(GLOBAL_TEMPORARY) && !FORMATS.contains(name);
        return name.equals(DEFAULT) || canBe && database(name).now != null;
    }

    @Override
    public synchronized Seq<String> listDatabases() {
        var names = new TreeSet<>(names("databases"));
        names.add(DEFAULT);
        return Seqs.seq(names);
    }

    @Override
    public Seq<String> listDatabases(String pattern) {
        return StringUtils.filterPattern(listDatabases(), pattern);
    }

    @Override
    public void setCurrentDatabase(String name) {}

    // ------------------------------------------------------------ tables

    @Override
    public synchronized void createTable(CatalogTable given, boolean ignoreIfExists) {
        checkMayChange();
        String database = given.database();
        String name = given.identifier().table();
        if (tableExists(database, name)) {
            if (!ignoreIfExists) {
                throw CatalogErrors.tableExists(database, name);
            }
            return;
        }
        String id = newId();
        CatalogTable table = noted(withoutComment(given));
        if (table.tableType().equals(CatalogTableType.MANAGED()) && table.storage().locationUri().isEmpty()) {
            // Never used again: a table that is dropped and made anew does not meet the files of the old one.
            table = CatalogCodec.at(table, new Path(new Path(getDatabase(database).locationUri()), name + "-" + id).toUri());
            folders.make(table);
        }
        table(database, name).set(new TableRecord(id, table));
    }

    /** Gives a table whose rows go a new folder, and returns it; it has no partitions and no statistics any more. */
    synchronized CatalogTable emptied(String database, String name) {
        CatalogTable table = getTable(database, name);
        String id = newId();
        var folder = new Path(new Path(table.location()).getParent(), name + "-" + id).toUri();
        folders.retire(table);
        existing(database, name).removePartitions();
        change(database, name, CatalogCodec.withStats(CatalogCodec.at(table, folder), Option.empty()));
        folders.make(getTable(database, name));
        return getTable(database, name);
    }

    /** Notes that rows are written into the folder of a table, and returns it. */
    synchronized CatalogTable written(String database, String name) {
        checkMayChange();
        existing(database, name).isWritten = true;
        return getTable(database, name);
    }

    /** Notes that rows are written into partitions of *table*, whichever they are. */
    synchronized TableWrite.OfTable writtenPartitions(CatalogTable table, String replaces,
            scala.collection.immutable.Map<String, String> within) {
        TableRecord record = existing(table.database(), table.identifier().table());
        record.awaitsRows = true;
        String key = Records.key("tables", table.database(), table.identifier().table());
        return new TableWrite.OfTable(key, record.id, table.location().toString(), replaces, record.path(within));
    }

    /** Makes a folder for rows that replace some of *table*, and returns its path. */
    synchronized String newFolder(CatalogTable table) {
        return folders.makeWithin(table, newId());
    }

    @Override
    public synchronized void dropTable(String database, String name, boolean ignoreIfNotExists, boolean purge) {
        checkMayChange();
        if (ignoreIfNotExists && !tableExists(database, name)) {
            return;
        }
        requireTableExists(database, name);
        drop(table(database, name));
    }

    @Override
    public synchronized void renameTable(String database, String name, String to) {
        checkMayChange();
        TableRecord table = existing(database, name);
        if (tableExists(database, to)) {
            throw CatalogErrors.tableExists(database, to);
        }
        table.spark = CatalogCodec.withName(table.spark, database, to); // its files stay where they are
        table(database, name).set(null);
        table(database, to).set(table);
    }

    @Override
    public synchronized void alterTable(CatalogTable to) {
        change(to.database(), to.identifier().table(), withoutComment(to));
    }

    @Override
    public synchronized void alterTableDataSchema(String database, String name, StructType dataSchema) {
        CatalogTable table = getTable(database, name);
        StructField[] fields = Stream.of(dataSchema.fields(), table.partitionSchema().fields()).flatMap(Stream::of).toArray(StructField[]::new);
        change(database, name, CatalogCodec.withSchema(table, new StructType(fields)));
    }

    @Override
    public synchronized void alterTableSchema(String database, String name, StructType schema) {
        change(database, name, CatalogCodec.withSchema(getTable(database, name), schema));
    }

    @Override
    public synchronized void alterTableStats(String database, String name, Option<CatalogStatistics> stats) {
        change(database, name, CatalogCodec.withStats(getTable(database, name), stats));
    }

    private void drop(Slot table) {
        if (table.now instanceof TableRecord record) {
            folders.retire(record.spark);
        }
        table.set(null);
    }

    /** A table's comment is a field of its own, which Spark also puts among the properties. */
    private static CatalogTable withoutComment(CatalogTable table) {
        return CatalogCodec.withProperties(table, table.properties().removed("comment"));
    }

    @Override
    public synchronized CatalogTable getTable(String database, String name) {
        return noted(existing(database, name).spark);
    }

    @Override
    public synchronized Seq<CatalogTable> getTablesByName(String database, Seq<String> names) {
        return Seqs.seq(tables(database, Seqs.list(names)));
    }

    @Override
    public synchronized boolean tableExists(String database, String name) {
        Slot found = NAME.matcher(database).matches() && NAME.matcher(name).matches() ? table(database, name) : null;
        requireDbExists(database);
        return found != null && found.now != null;
    }

    @Override
    public synchronized Seq<String> listTables(String database) {
        requireDbExists(database);
        return Seqs.seq(names("tables", database));
    }

    @Override
    public Seq<String> listTables(String database, String pattern) {
        return StringUtils.filterPattern(listTables(database), pattern);
    }

    @Override
    public synchronized Seq<String> listViews(String database, String pattern) {
        var views = tables(database, names("tables", database)).stream().filter(each -> each.tableType().equals(CatalogTableType.VIEW()));
        return StringUtils.filterPattern(Seqs.seq(views.map(each -> each.identifier().table()).toList()), pattern);
    }

    private List<CatalogTable> tables(String database, List<String> names) {
        requireDbExists(database);
        return tableSlots(database, names).stream().filter(each -> each.now != null).map(each -> ((TableRecord) each.now).spark).toList();
    }

    @Override
    public void loadTable(String database, String name, String path, boolean isOverwrite, boolean isSourceLocal) {
        throw noData();
    }

    @Override
    public void loadPartition(String database, String name, String path, scala.collection.immutable.Map<String, String> spec,
            boolean isOverwrite, boolean inheritsSpecs, boolean isSourceLocal) {
        throw noData();
    }

    @Override
    public void loadDynamicPartitions(String database, String name, String path, scala.collection.immutable.Map<String, String> spec,
            boolean replaces, int partitions) {
        throw noData();
    }

    private static RefusedException noData() {
        return new RefusedException("LOAD DATA moves files while the job is planned: use INSERT");
    }

    // ------------------------------------------------------------ functions

    @Override
    public synchronized void createFunction(String database, CatalogFunction made) {
        checkMayChange();
        requireFunctionNotExists(database, made.identifier().funcName());
        function(database, made.identifier().funcName()).set(made);
    }

    @Override
    public synchronized void dropFunction(String database, String name) {
        checkMayChange();
        getFunction(database, name);
        function(database, name).set(null);
    }

    @Override
    public synchronized void alterFunction(String database, CatalogFunction to) {
        checkMayChange();
        getFunction(database, to.identifier().funcName());
        function(database, to.identifier().funcName()).set(to);
    }

    @Override
    public synchronized void renameFunction(String database, String name, String to) {
        CatalogFunction renamed = CatalogCodec.withName(getFunction(database, name), database, to);
        createFunction(database, renamed);
        dropFunction(database, name);
    }

    @Override
    public synchronized CatalogFunction getFunction(String database, String name) {
        requireFunctionExists(database, name);
        return (CatalogFunction) function(database, name).now;
    }

    @Override
    public synchronized boolean functionExists(String database, String name) {
        requireDbExists(database);
        return function(database, name).now != null;
    }

    @Override
    public synchronized Seq<String> listFunctions(String database, String pattern) {
        requireDbExists(database);
        return StringUtils.filterPattern(Seqs.seq(names("functions", database)), pattern);
    }
}
