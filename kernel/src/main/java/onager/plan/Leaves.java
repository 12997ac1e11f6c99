package onager.plan;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.Serializable;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import onager.spark43.Files;
import onager.spark43.Nodes;
import onager.spark43.ProgramFiles;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.OneRowRelationExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.RangeExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** Describes the leaves of a physical plan, whose own fields do not survive serialisation, and rebuilds them. */
@SuppressWarnings("serial") // Scala's sequences are serialisable, and do not say so
public final class Leaves {
    private Leaves() {}

    /** The data from which a leaf is rebuilt. */
    interface Description extends Serializable {
        SparkPlan leaf(SparkSession session) throws ReflectiveOperationException;
    }

    record FilesOf(Seq<Attribute> output, StructType required, Seq<Expression> dataFilters, StoredFiles files) implements Description {
        /** *listed*: what *scan* reads. */
        static FilesOf of(FileSourceScanExec scan, List<PartitionDirectory> listed) {
            return new FilesOf(scan.output(), scan.requiredSchema(), Seqs.seq(planned(scan.dataFilters())), StoredFiles.of(scan.relation(), listed));
        }

        @Override
        public SparkPlan leaf(SparkSession session) throws ReflectiveOperationException {
            return scan(session, files.index());
        }

        /** The scan over *index* instead of the files that were described. */
        FileSourceScanExec scan(SparkSession session, FixedFileIndex index) throws ReflectiveOperationException {
            return Files.scan(index, files.dataSchema(), files.newFormat(), Seqs.map(files.options()), session, output, required, dataFilters);
        }
    }

    /** The files of one directory of a partitioned table; four *numbers* per file: length, time, block size, replication. */
    record Directory(InternalRow values, String[] paths, long[] numbers) implements Serializable {
        static Directory of(PartitionDirectory listed) {
            int count = listed.files().size();
            var made = new Directory(listed.values().copy(), new String[count], new long[4 * count]);
            int i = 0;
            for (var file : Seqs.list(listed.files())) {
                FileStatus status = file.fileStatus();
                made.paths[i] = status.getPath().toUri().toString();
                long[] numbers = {status.getLen(), status.getModificationTime(), status.getBlockSize(), status.getReplication()};
                System.arraycopy(numbers, 0, made.numbers, 4 * i++, 4);
            }
            return made;
        }

        PartitionDirectory listed() {
            var statuses = new FileStatus[paths.length];
            for (int i = 0; i < paths.length; i++) {
                statuses[i] = new FileStatus(numbers[4 * i], false, (int) numbers[4 * i + 3], numbers[4 * i + 2], numbers[4 * i + 1],
                        new Path(URI.create(paths[i])));
            }
            return PartitionDirectory.apply(values, statuses);
        }
    }

    /** *packed*: the rows, each preceded by its length. */
    record Rows(Seq<Attribute> output, int count, byte[] packed) implements Description {
        @Override
        public SparkPlan leaf(SparkSession session) {
            var rows = new ArrayList<InternalRow>(count);
            for (var in = ByteBuffer.wrap(packed); in.hasRemaining();) {
                var bytes = new byte[in.getInt()];
                in.get(bytes);
                var row = new UnsafeRow(output.size());
                row.pointTo(bytes, bytes.length);
                rows.add(row);
            }
            return Nodes.rows(output, rows);
        }
    }

    record Numbers(Seq<Attribute> output, long start, long end, long step, int slices) implements Description {
        @Override
        public SparkPlan leaf(SparkSession session) {
            return Nodes.range(start, end, step, slices, output);
        }
    }

    record OneRow() implements Description {
        @Override
        public SparkPlan leaf(SparkSession session) {
            return Nodes.oneRow();
        }
    }

    /**
     * What is known of a leaf: the bytes and the number of partitions that it reads (if it *grows*, those that are known), and for people
     * the *name* of its directory, table or source, and for files their number and *format* ("" for others). *digest*: "" if there is none.
     */
    record Facts(long bytes, int partitions, String name, long files, String format, boolean grows, String digest) {
        static Facts ofFiles(long bytes, int partitions, String root, long files, FileFormat format, boolean grows) {
            return new Facts(bytes, partitions, root, files, format.toString(), grows, "");
        }

        static Facts of(long bytes, int partitions, String name, boolean grows) {
            return new Facts(bytes, partitions, name.replaceAll("\\s+", " "), 0, "", grows, "");
        }

        Facts withDigest(String found) {
            return new Facts(bytes, partitions, name, files, format, grows, found == null ? "" : found);
        }
    }

    /**
     * Describes *leaf* in the file *target*; the rows of an RDD are computed here, once. If it *mayGrow*, files that are not listed yet, or
     * more partitions of a data source, may be left to a feed: its source and the portion that is known go to files beside *target*.
     *
     * @return null for rows or partitions of a source of more than *maxBytes*, and for a source that waits for a subquery
     */
    static Facts describe(SparkPlan leaf, SparkSession session, boolean mayGrow, long maxBytes, String target) throws Exception {
        String source = target + "-source";
        String portion = target + "-portion";
        if (leaf instanceof FileSourceScanExec scan) {
            Facts growing = mayGrow ? Feeds.describe(scan, target, source, portion) : null;
            return growing == null ? describeFiles(scan, target) : growing;
        }
        if (leaf instanceof BatchScanExec scan) {
            Facts growing = mayGrow ? PagedSources.describe(scan, target, source, portion) : null;
            Facts facts = growing == null ? PartitionsScanExec.describe(scan, target) : growing;
            return growing == null && new File(target).length() > maxBytes ? null : facts;
        }
        boolean hasRows = leaf instanceof LocalTableScanExec || leaf instanceof RDDScanExec || leaf instanceof CommandResultExec;
        return hasRows ? describeRows(leaf, session, maxBytes, target) : describeOther(leaf, target);
    }

    /** Describes a scan of files: the files as planned, none listed again. Its name is that of the table, if it is one of the catalog. */
    private static Facts describeFiles(FileSourceScanExec scan, String target) throws IOException {
        HadoopFsRelation relation = scan.relation();
        var dataFilters = Seqs.seq(planned(scan.dataFilters()));
        var listed = relation.location().listFiles(Seqs.seq(planned(scan.partitionFilters())), dataFilters);
        var files = Seqs.list(listed).stream().flatMap(directory -> Seqs.list(directory.files()).stream()).toList();
        Serialization.write(target, FilesOf.of(scan, Seqs.list(listed)));
        long all = files.stream().mapToLong(FileStatusWithMetadata::getLen).sum();
        long bytes = (long) (all * Queries.columnShare(relation, scan.requiredSchema().defaultSize()));
        String root = scan.tableIdentifier().isDefined() ? scan.tableIdentifier().get().table()
                : StoredFiles.roots(relation.location()).findFirst().orElse("");
        return Facts.ofFiles(bytes, Files.tasks(relation, listed), root, files.size(), relation.fileFormat(), false);
    }

    /** Returns where the files lie that *leaf* reads, one URI a line. */
    public static String roots(SparkPlan leaf) {
        Stream<String> found = leaf instanceof FileSourceScanExec scan
                ? StoredFiles.roots(scan.relation().location())
                : leaf instanceof PartitionsScanExec source ? source.files() : Stream.of();
        return found.collect(Collectors.joining("\n"));
    }

    /** The *filters* without subqueries, which are known when the query is planned. */
    private static List<Expression> planned(Seq<Expression> filters) {
        return Seqs.list(filters).stream().filter(filter -> !ExecSubqueryExpression.hasSubquery(filter)).toList();
    }

    /**
     * Returns *leaf*, of *tasks* partitions, below the runtime partition filters of a scan. They prune directories; filters that no join
     * repeats also filter rows.
     */
    static SparkPlan underRuntimeFilters(FileSourceScanExec scan, SparkPlan leaf, int tasks) {
        var filters = Seqs.list(scan.partitionFilters()).stream().filter(ExecSubqueryExpression::hasSubquery).toList();
        if (filters.isEmpty()) {
            return leaf;
        }
        SparkPlan filtered = new PrunedScanExec(Seqs.seq(filters), leaf, tasks);
        for (var filter : filters) {
            filtered = filter instanceof DynamicPruning ? filtered : Nodes.filter(filter, filtered);
        }
        return filtered;
    }

    /** Returns a scan like *scan* over *directories* only. */
    static FileSourceScanExec over(FileSourceScanExec scan, List<PartitionDirectory> directories) {
        HadoopFsRelation all = scan.relation();
        var files = new FixedFileIndex(all.location().rootPaths(), directories, all.partitionSchema());
        return Files.scan(files, all.dataSchema(), all.fileFormat(), all.options(), (SparkSession) all.sparkSession(), scan.output(),
                scan.requiredSchema(), scan.dataFilters());
    }

    private static Facts describeRows(SparkPlan leaf, SparkSession session, long maxBytes, String target) throws IOException {
        var bytes = new ByteArrayOutputStream();
        var out = new DataOutputStream(bytes);
        int count = 0;
        for (var row : Seqs.each(leaf.executeToIterator())) {
            byte[] packed = ((UnsafeRow) row).getBytes();
            out.writeInt(packed.length);
            out.write(packed);
            count++;
            if (out.size() > maxBytes || out.size() < 0) {
                return null;
            }
        }
        Serialization.write(target, new Rows(leaf.output(), count, bytes.toByteArray()));
        int partitions = count == 0 ? 0 : Math.min(count, session.leafNodeDefaultParallelism());
        return Facts.of(out.size(), partitions, "", false);
    }

    /** Describes a leaf without files and rows: a range, the one row of a query without FROM, or an empty relation. */
    private static Facts describeOther(SparkPlan leaf, String target) throws IOException {
        if (leaf instanceof RangeExec range) {
            Serialization.write(target, new Numbers(leaf.output(), range.start(), range.end(), range.step(), range.numSlices()));
            return Facts.of(range.numElements().min(Queries.MAX_NUMBERS).toLong() * 8, leaf.execute().getNumPartitions(), "", false);
        }
        boolean hasRow = leaf instanceof OneRowRelationExec;
        Serialization.write(target, hasRow ? new OneRow() : new Rows(leaf.output(), 0, new byte[0]));
        return Facts.of(0, hasRow ? 1 : 0, "", false);
    }

    /** Returns the leaf that *description* describes, for plans that run in *session*. */
    public static SparkPlan rebuild(byte[] description, SparkSession session) throws Exception {
        return within(session, () -> Serialization.<Description>decode(description).leaf(session));
    }

    /** Makes something while *session* is the active one, with the files that it has. */
    static <T> T within(SparkSession session, Callable<T> make) throws Exception {
        var before = Sessions.activate(session);
        try {
            return ProgramFiles.within(session, make);
        } finally {
            Sessions.activate(before);
        }
    }
}
