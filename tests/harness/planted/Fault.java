package planted;

import onager.bind.Bound;
import onager.spark43.RowRDD;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** A fault in the first task of a stage, or, if it is to fail or wait, in others, too. */
public class Fault extends RowRDD {
    /** Whether what is held may go on. */
    private static volatile boolean isOpen = false;

    private final String kind;

    private Fault(RDD rows, String kind) {
        super(rows);
        this.kind = kind;
    }

    public static Bound in(Bound made, String kind) {
        return new Bound(made.session(), made.plan(), new Fault(made.rdd(), kind), made.broadcasts(), made.operators(), made.codegenMs());
    }

    public static void open(boolean isOpen) {
        Fault.isOpen = isOpen;
    }

    public Partition[] getPartitions() {
        return parent().partitions();
    }

    public Iterator compute(Partition split, TaskContext context) {
        Iterator rows = parent().iterator(split, context);
        return split.index() == 0 || kind.equals("hold") || kind.equals("fail") ? new Rows(rows, kind, split.index(), context) : rows;
    }

    private static class Rows extends AbstractIterator {
        private final Iterator rows;
        private final String kind;
        private final int partition;
        private final TaskContext context;
        private int given = 0;
        private boolean hasLost = false;
        private InternalRow kept = null;

        Rows(Iterator rows, String kind, int partition, TaskContext context) {
            this.rows = rows;
            this.kind = kind;
            this.partition = partition;
            this.context = context;
        }

        public boolean hasNext() {
            if (given == 0 && kind.equals("hold")) {
                hold();
            }
            if (given == 0 && kind.equals("lose") && !hasLost && rows.hasNext()) {
                rows.next();
                hasLost = true;
            }
            return kept != null || rows.hasNext();
        }

        private void hold() {
            while (!isOpen) {
                context.killTaskIfInterrupted();
                try {
                    Thread.sleep(5L);
                } catch (InterruptedException e) {
                    throw new TaskKilledException("stopped while it was held");
                }
            }
        }

        public Object next() {
            hasNext();
            given++;
            if (given == 2 && kind.startsWith("fail")) {
                fail();
            }
            if (given == 1 && kind.equals("duplicate")) {
                kept = ((InternalRow) rows.next()).copy();
                return kept;
            }
            if (given == 1 && kind.equals("swap")) {
                kept = ((InternalRow) rows.next()).copy();
                rows.hasNext();
                return rows.next();
            }
            if (kept != null) {
                InternalRow row = kept;
                kept = null;
                return row;
            }
            return rows.next();
        }

        /** The first task fails, and others when they are to stop because of that. */
        private void fail() {
            if (partition == 0) {
                throw new LinkageError("the first reason");
            }
            try {
                hold();
            } catch (TaskKilledException e) {
                throw new IllegalArgumentException("a later reason");
            }
        }
    }

    /** Return a leaf of which every partition has the rows of all partitions of *made*. */
    public static SparkPlan everything(SparkPlan made, SparkSession session) {
        org.apache.spark.sql.SparkSession.setActiveSession(session); // nodes take theirs from there
        RDD whole = (made.supportsColumnar() ? new ColumnarToRowExec(made) : made).execute();
        Object[] copies = new Object[whole.getNumPartitions()];
        for (int i = 0; i < copies.length; i++) {
            copies[i] = whole.coalesce(1, false, scala.Option.empty(), null); // a partition of all that there are
        }
        RDD all = whole.sparkContext().union(
                scala.jdk.javaapi.CollectionConverters.asScala(java.util.Arrays.asList(copies)).toSeq(),
                ClassTag$.MODULE$.apply(InternalRow.class));
        return new RDDScanExec(made.output(), all, "everything", new UnknownPartitioning(all.getNumPartitions()),
                (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$, scala.Option.empty());
    }
}
