package onager.plan;

import onager.spark43.OwnExec;
import onager.values.Seqs;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A scan of one portion of the files of a growing stage. Its partitions have the numbers that they have in the stage, so that what depends
 * on them (`spark_partition_id`, `monotonically_increasing_id`, `rand`) is the same as if all files had been known. Those before it have
 * no rows here, and do not run.
 */
@SuppressWarnings("serial")
public final class GrownScanExec extends OwnExec {
    private final int first;

    /** *first*: the number of the portion's first partition. Spark calls this constructor by reflection. */
    public GrownScanExec(SparkPlan scan, int first) {
        super(scan);
        this.first = first;
    }

    private <T> RDD<T> placed(RDD<T> rows, Class<T> of) {
        if (first == 0) {
            return rows;
        }
        RDD<T> none = sparkContext().parallelize(Seqs.<T>seq(), first, Seqs.tag(of));
        return sparkContext().union(Seqs.seq(none, rows), Seqs.tag(of));
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return placed(child.execute(), InternalRow.class);
    }

    @Override
    public RDD<ColumnarBatch> doExecuteColumnar() {
        return placed(child.executeColumnar(), ColumnarBatch.class);
    }

    @Override
    public boolean supportsColumnar() {
        return child.supportsColumnar();
    }

    @Override
    protected SparkPlan over(SparkPlan other) {
        return new GrownScanExec(other, first);
    }

    @Override
    protected Object[] parts() {
        return new Object[] {child};
    }

    @Override
    public String nodeName() {
        return "Growing";
    }
}
