package onager.bind;

import onager.spark43.OwnExec;
import onager.spark43.RowRDD;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;
import scala.collection.Iterator$;
import scala.collection.immutable.Seq;

/**
 * Operators directly below and above a Python table function, which skip the function in a task without input rows. Spark joins the output
 * of `terminate` with the last input row, and fails if there is none. With adaptive execution, tasks without rows are rare, but a stage
 * has one for each empty bucket.
 */
@SuppressWarnings("serial")
final class UdtfGuardExec extends OwnExec {
    private final boolean isAbove;

    private UdtfGuardExec(SparkPlan child, boolean isAbove) {
        super(child);
        this.isAbove = isAbove;
    }

    static SparkPlan below(SparkPlan input) {
        return new UdtfGuardExec(input, false);
    }

    static SparkPlan above(SparkPlan function) {
        return new UdtfGuardExec(function, true);
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return new Guarded(child.execute(), isAbove);
    }

    @Override
    public Partitioning outputPartitioning() {
        return child.outputPartitioning();
    }

    @Override
    public Seq<SortOrder> outputOrdering() {
        return child.outputOrdering();
    }

    @Override
    protected SparkPlan over(SparkPlan other) {
        return new UdtfGuardExec(other, isAbove);
    }

    @Override
    protected Object[] parts() {
        return new Object[] {child, isAbove};
    }

    @Override
    public String nodeName() {
        return isAbove ? "IfRows" : "HasRows";
    }

    /** Signals that a partition of a function's input has no rows, before a Python worker is started for it. */
    private static final class NoRows extends RuntimeException {
        NoRows() {
            super("no rows", null, false, false);
        }
    }

    /** The input or output of a function, which gets its input's iterator while its own iterator is made. */
    private static final class Guarded extends RowRDD {
        private final boolean isAbove;

        Guarded(RDD<InternalRow> rows, boolean isAbove) {
            super(rows);
            this.isAbove = isAbove;
        }

        @Override
        public Partition[] getPartitions() {
            return parent().partitions();
        }

        @Override
        public Iterator<InternalRow> compute(Partition split, TaskContext context) {
            Iterator<InternalRow> rows;
            try {
                rows = parent().iterator(split, context);
            } catch (NoRows e) {
                return Iterator$.MODULE$.empty();
            }
            if (!isAbove && !rows.hasNext()) {
                throw new NoRows();
            }
            return rows;
        }
    }
}
