package onager.bind;

import onager.spark43.OwnExec;
import onager.spark43.RowRDD;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;
import scala.collection.Iterator$;
import scala.collection.immutable.Seq;

/**
 * Stands right below and right above a Python table function, and lets it not run in a task without input rows. Spark joins
 * what `terminate` gives with the last input row, and fails where there was none; with adaptive execution it seldom has a
 * task without rows, but a stage has one for each empty bucket.
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
    public Seq<Attribute> output() {
        return child.output();
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

    /** Says that a partition of a function's input has no rows, before the function's worker is asked for. */
    private static final class NoRows extends RuntimeException {
        NoRows() {
            super("no rows", null, false, false);
        }
    }

    /** The input of a function, or what it gives. A function takes its input's iterator within the call for its own. */
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
