package onager.kernel;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;
import scala.collection.Iterator$;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Stands right below and right above a Python table function, and lets it not run in a task without input rows. Spark joins
 * what `terminate` gives with the last input row, and fails where there was none; with adaptive execution it seldom has a
 * task without rows, but a stage has one for each empty bucket.
 */
public final class UdtfGuardExec extends OwnExec {
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

    public RDD doExecute() {
        RDD rows = child.execute();
        return isAbove ? (RDD) new Function(rows) : (RDD) new Input(rows);
    }

    public Seq output() {
        return child.output();
    }

    public Partitioning outputPartitioning() {
        return child.outputPartitioning();
    }

    public Seq outputOrdering() {
        return child.outputOrdering();
    }

    SparkPlan over(SparkPlan other) {
        return new UdtfGuardExec(other, isAbove);
    }

    Object[] parts() {
        return new Object[] {child, Boolean.valueOf(isAbove)};
    }

    public String nodeName() {
        return isAbove ? "IfRows" : "HasRows";
    }

    private static ClassTag rowTag() {
        return ClassTag$.MODULE$.apply(InternalRow.class);
    }

    /** Says that a partition of a function's input has no rows, before the function's worker is asked for. */
    static final class NoRows extends RuntimeException {
        NoRows() {
            super("no rows", null, false, false);
        }
    }

    /** The input of a function. */
    static final class Input extends RDD {
        Input(RDD rows) {
            super(rows, rowTag());
        }

        public Partition[] getPartitions() {
            return firstParent(rowTag()).partitions();
        }

        public Iterator compute(Partition split, TaskContext context) {
            Iterator rows = firstParent(rowTag()).iterator(split, context);
            if (!rows.hasNext()) {
                throw new NoRows();
            }
            return rows;
        }
    }

    /** What a function gives. It takes its input's iterator within the call for its own, so `NoRows` comes from there. */
    static final class Function extends RDD {
        Function(RDD rows) {
            super(rows, rowTag());
        }

        public Partition[] getPartitions() {
            return firstParent(rowTag()).partitions();
        }

        public Iterator compute(Partition split, TaskContext context) {
            try {
                return firstParent(rowTag()).iterator(split, context);
            } catch (NoRows e) {
                return Iterator$.MODULE$.empty();
            }
        }
    }
}
