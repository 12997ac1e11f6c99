package onager.plan;

import java.io.IOException;
import java.util.List;
import java.util.stream.Stream;
import onager.spark43.Files;
import onager.spark43.Nodes;
import onager.spark43.OwnExec;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * A scan of a data source (in Python, or of Spark's DataSource V2) as a leaf of a plan. It has the partitions that the source returned when
 * the query was planned; task i reads partition i with the source's own reader. Both are serialisable by contract.
 */
@SuppressWarnings("serial")
public final class PartitionsScanExec extends OwnExec {
    /** The assumed size of a source that does not report one: larger than any limit for small queries. */
    private static final long UNKNOWN = 1L << 50;

    private final Seq<Attribute> output;
    // Transient: closures of nodes above serialise the plan for their tasks, which do not need the partitions of all others.
    private final transient Seq<Option<InputPartition>> partitions;
    private final transient PartitionReaderFactory readers;
    private final boolean isColumnar;
    private final String name;

    private PartitionsScanExec(Partitions of) {
        super(null);
        this.output = of.output;
        this.partitions = of.partitions;
        this.readers = of.readers;
        this.isColumnar = of.isColumnar;
        this.name = of.name;
    }

    private record Partitions(Seq<Attribute> output, Seq<Option<InputPartition>> partitions, PartitionReaderFactory readers,
            boolean isColumnar, String name) implements Leaves.Description {
        @Override
        public SparkPlan leaf(SparkSession session) {
            return new PartitionsScanExec(this);
        }
    }

    /**
     * Describes *scan* in the file *target*; its source is asked for its partitions here, once.
     *
     * @return null for a scan with runtime filters that no other operator applies
     */
    static Leaves.Facts describe(BatchScanExec scan, String target) throws IOException {
        if (!Seqs.list(scan.runtimeFilters()).stream().allMatch(DynamicPruning.class::isInstance)) {
            return null;
        }
        String name = name(scan);
        var found = new Partitions(Seqs.seq(Seqs.list(scan.output())), PagedSources.all(scan), scan.readerFactory(),
                scan.supportsColumnar(), name);
        Serialization.write(target, found);
        return Leaves.Facts.of(bytes(scan.scan()), found.partitions.size(), name, false);
    }

    /** Returns a scan of *partitions* alone. */
    static PartitionsScanExec of(Seq<Attribute> output, List<InputPartition> partitions, PartitionReaderFactory readers, boolean isColumnar,
            String name) {
        return new PartitionsScanExec(new Partitions(output, some(partitions), readers, isColumnar, name));
    }

    static Seq<Option<InputPartition>> some(List<InputPartition> partitions) {
        return Seqs.seq(partitions.stream().map(Option::apply).toList());
    }

    /** Returns a file of each partition that consists of files, as URIs. */
    Stream<String> files() {
        return Seqs.list(partitions).stream().filter(Option::isDefined).map(Option::get)
                .filter(FilePartition.class::isInstance).map(FilePartition.class::cast)
                .flatMap(each -> Stream.of(each.files()).limit(1)).map(file -> file.toPath().toString());
    }

    /** Whether *leaf* describes a scan of a Python data source, as far as its partitions tell. */
    static boolean isOfPython(Leaves.Description leaf) {
        return leaf instanceof Partitions source && Seqs.list(source.partitions).stream()
                .allMatch(each -> each.isDefined() && each.get() instanceof PythonInputPartition);
    }

    static String name(BatchScanExec scan) {
        return scan.table() == null ? "" : scan.table().name();
    }

    static long bytes(Scan scan) {
        return scan instanceof SupportsReportStatistics known
                ? Math.min(UNKNOWN, known.estimateStatistics().sizeInBytes().orElse(UNKNOWN))
                : UNKNOWN;
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return Files.dataSource(sparkContext(), partitions, readers, isColumnar);
    }

    @Override
    @SuppressWarnings("unchecked") // columnar batches are passed as rows, as in Spark
    public RDD<ColumnarBatch> doExecuteColumnar() {
        return (RDD<ColumnarBatch>) (RDD<?>) doExecute();
    }

    @Override
    public Seq<Attribute> output() {
        return output;
    }

    @Override
    public boolean supportsColumnar() {
        return isColumnar;
    }

    @Override
    public Partitioning outputPartitioning() {
        return Nodes.unknown(partitions.size());
    }

    @Override
    protected Object[] parts() {
        return new Object[] {output, name};
    }

    @Override
    public String nodeName() {
        return "Scan " + name;
    }
}
