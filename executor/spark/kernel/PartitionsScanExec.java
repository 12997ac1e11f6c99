package onager.kernel;

import java.io.IOException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * A scan of a data source (Python's, or any of Spark's second interface) as a leaf of a plan: the partitions that the source
 * gave when the query was planned, each read by the task of its number, by the source's own reader. Sources make both to be sent
 * to other processes.
 */
public final class PartitionsScanExec extends OwnExec {
    /** What a source counts as that does not say how much it holds: more than anything small. */
    private static final long UNKNOWN = 1L << 50;

    private final Seq output;
    // Closures of nodes above take the plan along to their tasks, which have no use for the partitions of all others.
    private final transient Seq partitions;
    private final transient PartitionReaderFactory readers;
    private final boolean isColumnar;
    private final String name;

    private PartitionsScanExec(Seq output, Seq partitions, PartitionReaderFactory readers, boolean isColumnar, String name) {
        super(null);
        this.output = output;
        this.partitions = partitions;
        this.readers = readers;
        this.isColumnar = isColumnar;
        this.name = name;
    }

    /**
     * Describes *scan* in the file *target*; its source is asked for its partitions here, once.
     *
     * @return "bytes partitions name", separated by tabs; null for a scan with filters that only a running query knows and that
     *     nobody else applies
     */
    public static String describe(BatchScanExec scan, String target) throws IOException {
        Iterator filters = scan.runtimeFilters().iterator();
        while (filters.hasNext()) {
            if (!(filters.next() instanceof DynamicPruning)) {
                return null;
            }
        }
        Seq partitions = scan.partitions();
        String name = scan.table() == null ? "" : scan.table().name();
        PlanTools.write(target, new Object[] {
            "partitions", scan.output(), partitions, scan.readerFactory(), Boolean.valueOf(scan.supportsColumnar()), name
        });
        return bytes(scan.scan()) + "\t" + partitions.size() + "\t" + name.replaceAll("\\s+", " ");
    }

    private static long bytes(Scan scan) {
        if (!(scan instanceof SupportsReportStatistics)) {
            return UNKNOWN;
        }
        return Math.min(UNKNOWN, ((SupportsReportStatistics) scan).estimateStatistics().sizeInBytes().orElse(UNKNOWN));
    }

    /** Makes the leaf of a description. */
    static SparkPlan rebuilt(Object[] parts) {
        boolean isColumnar = ((Boolean) parts[4]).booleanValue();
        return new PartitionsScanExec((Seq) parts[1], (Seq) parts[2], (PartitionReaderFactory) parts[3], isColumnar, (String) parts[5]);
    }

    private RDD rows() {
        return Spark43.dataSource(sparkContext(), partitions, readers, isColumnar);
    }

    public Seq output() {
        return output;
    }

    public boolean supportsColumnar() {
        return isColumnar;
    }

    public RDD doExecute() {
        return rows();
    }

    public RDD doExecuteColumnar() {
        return rows();
    }

    public Partitioning outputPartitioning() {
        return new UnknownPartitioning(partitions.size());
    }

    SparkPlan over(SparkPlan other) {
        return this;
    }

    Object[] parts() {
        return new Object[] {output, name};
    }

    public String nodeName() {
        return "Scan " + name;
    }
}
