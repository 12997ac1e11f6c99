package onager.run;

import onager.spark43.RowRDD;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The rows of another RDD, which is asked for a partition only by `begun`. Spark asks an RDD for its rows before it calls a task's function,
 * and some operators work at that moment: a join that hashes has read all of one side by then. So this work is within the task's time, and
 * when it fails it fails that task alone.
 */
@SuppressWarnings("serial")
final class LateRDD extends RowRDD {
    LateRDD(RDD<InternalRow> parent) {
        super(parent);
    }

    @Override
    public Partition[] getPartitions() {
        return parent().partitions();
    }

    @Override
    public Iterator<InternalRow> compute(Partition split, TaskContext context) {
        return new Late(this, split, context);
    }

    /** Return the parent's rows of the partition that *rows*, which `compute` returned, stand for. */
    static Iterator<InternalRow> begun(Iterator<InternalRow> rows) {
        return rows instanceof Late late ? late.begun() : rows;
    }

    private static final class Late extends AbstractIterator<InternalRow> {
        private final LateRDD rdd;
        private final Partition split;
        private final TaskContext context;
        private Iterator<InternalRow> rows = null;

        Late(LateRDD rdd, Partition split, TaskContext context) {
            this.rdd = rdd;
            this.split = split;
            this.context = context;
        }

        Iterator<InternalRow> begun() {
            if (rows == null) {
                rows = rdd.parent().iterator(split, context);
            }
            return rows;
        }

        @Override
        public boolean hasNext() {
            return begun().hasNext();
        }

        @Override
        public InternalRow next() {
            return begun().next();
        }
    }
}
