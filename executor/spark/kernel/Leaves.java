package onager.kernel;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.OneRowRelationExec;
import org.apache.spark.sql.execution.PartitionedFileUtil$;
import org.apache.spark.sql.execution.RangeExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FilePartition$;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.BigInt;

/**
 * Describes the leaves of a physical plan, whose own fields do not survive serialisation, and makes them again.
 *
 * <p>A description is a Java-serialised Object[]; its first item says of what kind: "files", "rows", "range",
 * "one row" or "partitions" (of a data source).
 */
public final class Leaves {
    private static final BigInt MOST_NUMBERS = BigInt.apply(1L << 50);

    private Leaves() {}

    /**
     * Describes a scan of files in the file {@code target}: the files as planned, none listed again.
     *
     * @return "bytes files partitions format root", separated by tabs
     */
    public static String describeFiles(FileSourceScanExec scan, String target) throws IOException {
        HadoopFsRelation relation = scan.relation();
        ArrayList partitionFilters = new ArrayList();
        split(scan.partitionFilters(), partitionFilters, new ArrayList());
        ArrayList dataFilters = new ArrayList();
        split(scan.dataFilters(), dataFilters, new ArrayList());
        Seq listed = relation.location().listFiles(PlanTools.seq(partitionFilters), PlanTools.seq(dataFilters));
        ArrayList directories = new ArrayList();
        long bytes = 0;
        long files = 0;
        Iterator each = listed.iterator();
        while (each.hasNext()) {
            PartitionDirectory directory = (PartitionDirectory) each.next();
            directories.add(directory(directory));
            Iterator statuses = directory.files().iterator();
            while (statuses.hasNext()) {
                bytes += ((FileStatusWithMetadata) statuses.next()).getLen();
                files++;
            }
        }
        ArrayList roots = new ArrayList();
        Iterator paths = relation.location().rootPaths().iterator();
        while (paths.hasNext()) {
            roots.add(paths.next().toString());
        }
        PlanTools.write(target, new Object[] {
            "files",
            scan.output(),
            scan.requiredSchema(),
            PlanTools.seq(dataFilters),
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.fileFormat().getClass().getName(),
            new HashMap(CollectionConverters.asJava(relation.options())),
            roots,
            directories
        });
        String root = roots.isEmpty() ? "" : (String) roots.get(0);
        bytes = (long) (bytes * Queries.columnShare(relation, scan.requiredSchema().defaultSize()));
        return bytes + "\t" + files + "\t" + splits(relation, listed) + "\t" + relation.fileFormat() + "\t" + root;
    }

    /** Returns how many tasks read these files: what a scan of them counts, without making its reader. */
    private static int splits(HadoopFsRelation relation, Seq directories) {
        SparkSession session = (SparkSession) relation.sparkSession();
        long most = FilePartition$.MODULE$.maxSplitBytes(session, directories);
        ArrayList pieces = new ArrayList();
        Iterator each = directories.iterator();
        while (each.hasNext()) {
            PartitionDirectory directory = (PartitionDirectory) each.next();
            Iterator files = directory.files().iterator();
            while (files.hasNext()) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) files.next();
                Path path = file.getPath();
                boolean isSplitable = relation.fileFormat().isSplitable(session, relation.options(), path);
                Iterator parts = PartitionedFileUtil$.MODULE$
                        .splitFiles(file, path, isSplitable, most, directory.values())
                        .iterator();
                while (parts.hasNext()) {
                    pieces.add(parts.next());
                }
            }
        }
        Collections.sort(pieces, new LongestFirst());
        return FilePartition$.MODULE$.getFilePartitions(session, PlanTools.seq(pieces), most).size();
    }

    private static final class LongestFirst implements Comparator {
        public int compare(Object one, Object other) {
            return Long.compare(((PartitionedFile) other).length(), ((PartitionedFile) one).length());
        }
    }

    private static Object[] directory(PartitionDirectory directory) {
        Seq files = directory.files();
        String[] paths = new String[files.size()];
        long[] numbers = new long[4 * files.size()];
        Iterator each = files.iterator();
        for (int i = 0; each.hasNext(); i++) {
            FileStatus status = ((FileStatusWithMetadata) each.next()).fileStatus();
            paths[i] = status.getPath().toUri().toString();
            numbers[4 * i] = status.getLen();
            numbers[4 * i + 1] = status.getModificationTime();
            numbers[4 * i + 2] = status.getBlockSize();
            numbers[4 * i + 3] = status.getReplication();
        }
        return new Object[] {directory.values().copy(), paths, numbers};
    }

    private static PartitionDirectory directory(Object[] description) {
        String[] paths = (String[]) description[1];
        long[] numbers = (long[]) description[2];
        FileStatus[] statuses = new FileStatus[paths.length];
        for (int i = 0; i < paths.length; i++) {
            statuses[i] = new FileStatus(
                    numbers[4 * i],
                    false,
                    (int) numbers[4 * i + 3],
                    numbers[4 * i + 2],
                    numbers[4 * i + 1],
                    new Path(URI.create(paths[i])));
        }
        return PartitionDirectory.apply((InternalRow) description[0], statuses);
    }

    /** Tells apart the filters known when the query is planned from those with a subquery. */
    private static void split(Seq filters, List planned, List atRunTime) {
        Iterator each = filters.iterator();
        while (each.hasNext()) {
            Expression filter = (Expression) each.next();
            (ExecSubqueryExpression.hasSubquery(filter) ? atRunTime : planned).add(filter);
        }
    }

    /**
     * Returns {@code leaf}, of {@code tasks} partitions, below those partition filters of a scan that only a running query can
     * evaluate. They leave out directories, and those that a join does not repeat rows as well.
     */
    public static SparkPlan underRuntimeFilters(FileSourceScanExec scan, SparkPlan leaf, int tasks) {
        ArrayList filters = new ArrayList();
        split(scan.partitionFilters(), new ArrayList(), filters);
        if (filters.isEmpty()) {
            return leaf;
        }
        SparkPlan filtered = new PrunedScanExec(PlanTools.seq(filters), leaf, tasks);
        for (int i = 0; i < filters.size(); i++) {
            if (!(filters.get(i) instanceof DynamicPruning)) {
                filtered = new FilterExec((Expression) filters.get(i), filtered);
            }
        }
        return filtered;
    }

    /** Returns a scan like {@code scan} of {@code directories} alone. */
    static FileSourceScanExec over(FileSourceScanExec scan, List directories) {
        HadoopFsRelation all = scan.relation();
        ArrayList roots = new ArrayList();
        Iterator paths = all.location().rootPaths().iterator();
        while (paths.hasNext()) {
            roots.add(paths.next());
        }
        return scan(
                new FixedFileIndex(roots, directories, all.partitionSchema()),
                all.dataSchema(),
                all.fileFormat(),
                all.options(),
                (SparkSession) all.sparkSession(),
                scan.output(),
                scan.requiredSchema(),
                scan.dataFilters());
    }

    private static FileSourceScanExec scan(FixedFileIndex files, StructType dataSchema, FileFormat format,
            scala.collection.immutable.Map options, SparkSession session, Seq output, StructType required, Seq dataFilters) {
        Option none = Option.apply(null);
        HadoopFsRelation relation =
                new HadoopFsRelation(files, files.partitionSchema(), dataSchema, none, format, options, session);
        Seq noFilters = PlanTools.noItems();
        return new FileSourceScanExec(relation, none, output, required, noFilters, none, none, dataFilters, none, true, false);
    }

    /**
     * Describes the rows that a leaf gives now in the file {@code target}; those of an RDD are computed here, once.
     *
     * @return "bytes partitions", separated by a tab; null if the rows are more than {@code maxBytes}
     */
    public static String describeRows(SparkPlan leaf, SparkSession session, long maxBytes, String target)
            throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        Iterator rows = leaf.executeToIterator();
        int count = 0;
        while (rows.hasNext()) {
            byte[] row = ((UnsafeRow) rows.next()).getBytes();
            out.writeInt(row.length);
            out.write(row);
            count++;
            if (out.size() > maxBytes || out.size() < 0) {
                return null;
            }
        }
        PlanTools.write(target, new Object[] {"rows", leaf.output(), Integer.valueOf(count), bytes.toByteArray()});
        int partitions = count == 0 ? 0 : Math.min(count, session.leafNodeDefaultParallelism());
        return out.size() + "\t" + partitions;
    }

    /**
     * Describes a leaf without files and rows (a range, the one row of a query without FROM, nothing at all).
     *
     * @return "bytes partitions", separated by a tab
     */
    public static String describeOther(SparkPlan leaf, String target) throws IOException {
        if (leaf instanceof RangeExec) {
            RangeExec range = (RangeExec) leaf;
            long[] numbers = new long[] {range.start(), range.end(), range.step(), range.numSlices()};
            PlanTools.write(target, new Object[] {"range", leaf.output(), numbers});
            return range.numElements().min(MOST_NUMBERS).toLong() * 8 + "\t" + leaf.execute().getNumPartitions();
        }
        if (leaf instanceof OneRowRelationExec) {
            PlanTools.write(target, new Object[] {"one row"});
            return "0\t1";
        }
        PlanTools.write(target, new Object[] {"rows", leaf.output(), Integer.valueOf(0), new byte[0]});
        return "0\t0";
    }

    /** Makes the leaf of a description, for plans that run in {@code session}. */
    public static SparkPlan rebuild(byte[] description, SparkSession session)
            throws IOException, ReflectiveOperationException {
        Option before = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session);
        try {
            return rebuilt((Object[]) Kernel.decode(description), session);
        } finally {
            if (before.isDefined()) {
                SparkSession.setActiveSession((SparkSession) before.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }

    private static SparkPlan rebuilt(Object[] parts, SparkSession session) throws ReflectiveOperationException {
        String kind = (String) parts[0];
        Option none = Option.apply(null);
        if (kind.equals("one row")) {
            return new OneRowRelationExec();
        }
        if (kind.equals("partitions")) {
            return PartitionsScanExec.rebuilt(parts);
        }
        Seq output = (Seq) parts[1];
        if (kind.equals("range")) {
            long[] numbers = (long[]) parts[2];
            Option slices = Option.apply(Integer.valueOf((int) numbers[3]));
            return new RangeExec(new Range(numbers[0], numbers[1], numbers[2], slices, output, false));
        }
        if (kind.equals("rows")) {
            return new LocalTableScanExec(output, rows(output, (Integer) parts[2], (byte[]) parts[3]), none, false);
        }
        ArrayList roots = new ArrayList();
        List names = (List) parts[8];
        for (int i = 0; i < names.size(); i++) {
            roots.add(new Path((String) names.get(i)));
        }
        ArrayList directories = new ArrayList();
        List described = (List) parts[9];
        for (int i = 0; i < described.size(); i++) {
            directories.add(directory((Object[]) described.get(i)));
        }
        FileFormat format = (FileFormat) Class.forName((String) parts[6], true, Thread.currentThread().getContextClassLoader())
                .getConstructor(new Class[0])
                .newInstance(new Object[0]);
        return scan(
                new FixedFileIndex(roots, directories, (StructType) parts[4]),
                (StructType) parts[5],
                format,
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala((Map) parts[7])),
                session,
                output,
                (StructType) parts[2],
                (Seq) parts[3]);
    }

    private static Seq rows(Seq output, Integer count, byte[] packed) {
        ArrayList rows = new ArrayList(count.intValue());
        ByteBuffer in = ByteBuffer.wrap(packed);
        for (int i = 0; i < count.intValue(); i++) {
            byte[] bytes = new byte[in.getInt()];
            in.get(bytes);
            UnsafeRow row = new UnsafeRow(output.size());
            row.pointTo(bytes, bytes.length);
            rows.add(row);
        }
        return PlanTools.seq(rows);
    }
}
