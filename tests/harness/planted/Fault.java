package planted;

import onager.rows.ExchangeSink;
import onager.rows.Frame;
import onager.testing.Interposer;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** A fault in the first task of a stage; reading everything: in all of its tasks. */
public class Fault implements Interposer {
    private String kind;
    private int stage;

    public Fault of(String kind, int stage) {
        this.kind = kind;
        this.stage = stage;
        return this;
    }

    public Iterator rows(Iterator made, int stage, int partition) {
        return stage == this.stage && partition == 0 ? new Rows(made, kind) : made;
    }

    private static class Rows extends AbstractIterator {
        private final Iterator rows;
        private final String kind;
        private int given = 0;
        private boolean hasLost = false;
        private InternalRow kept = null;

        Rows(Iterator rows, String kind) {
            this.rows = rows;
            this.kind = kind;
        }

        public boolean hasNext() {
            if (given == 0 && kind.equals("lose") && !hasLost && rows.hasNext()) {
                rows.next();
                hasLost = true;
            }
            return kept != null || rows.hasNext();
        }

        public Object next() {
            hasNext();
            given++;
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
    }

    public ExchangeSink sink(ExchangeSink made, int stage, int partition) {
        return stage == this.stage && partition == 0 ? new Sink(made, kind) : made;
    }

    private static class Sink implements ExchangeSink {
        private final ExchangeSink to;
        private final String kind;
        private boolean hasPut = false;

        Sink(ExchangeSink to, String kind) {
            this.to = to;
            this.kind = kind;
        }

        public boolean put(int bucket, Frame frame) throws java.io.IOException, InterruptedException {
            if (kind.equals("end early") && hasPut) {
                return true;
            }
            hasPut = true;
            return to.put(bucket, frame);
        }

        public void finish(long[] rows) throws java.io.IOException, InterruptedException {
            if (!kind.equals("fall silent")) {
                to.finish(rows);
            }
        }

        public void abort(Throwable why) {
            to.abort(why);
        }

        public long bytes() {
            return to.bytes();
        }
    }

    public SparkPlan leaf(SparkPlan made, int stage, int partition) {
        if (!kind.equals("read everything") || stage != this.stage) {
            return made;
        }
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
