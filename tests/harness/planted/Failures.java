package planted;

import onager.rows.ExchangeSink;
import onager.rows.Frame;
import onager.testing.Interposer;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Lets the first task of a stage fail after a row, and then, unless it is to fail alone, the others for a later reason. */
public class Failures implements Interposer {
    private int stage;
    private boolean isAlone;
    private boolean hasFirstFailed = false;

    public Failures of(int stage, boolean isAlone) {
        this.stage = stage;
        this.isAlone = isAlone;
        return this;
    }

    synchronized void failed() {
        hasFirstFailed = true;
        notifyAll();
    }

    synchronized void awaitFirst() {
        while (!hasFirstFailed) {
            try {
                wait();
            } catch (InterruptedException e) {
                // it fails for its own reason all the same
            }
        }
    }

    public Iterator rows(Iterator made, int stage, int partition) {
        return stage == this.stage && (partition == 0 || !isAlone) ? new Rows(made, partition) : made;
    }

    private class Rows extends AbstractIterator {
        private final Iterator rows;
        private final int partition;
        private boolean hasGiven = false;

        Rows(Iterator rows, int partition) {
            this.rows = rows;
            this.partition = partition;
        }

        public boolean hasNext() {
            return rows.hasNext();
        }

        public Object next() {
            if (!hasGiven) {
                hasGiven = true;
                return rows.next();
            }
            if (partition > 0) {
                awaitFirst();
                throw new IllegalArgumentException("a later reason");
            }
            throw new LinkageError("the first reason");
        }
    }

    public ExchangeSink sink(ExchangeSink made, int stage, int partition) {
        return stage == this.stage && partition == 0 ? new Sink(made) : made;
    }

    private class Sink implements ExchangeSink {
        private final ExchangeSink to;

        Sink(ExchangeSink to) {
            this.to = to;
        }

        public boolean put(int bucket, Frame frame) throws java.io.IOException, InterruptedException {
            return to.put(bucket, frame);
        }

        public void finish(long[] rows) throws java.io.IOException, InterruptedException {
            to.finish(rows);
        }

        public void abort(Throwable why) {
            to.abort(why);
            failed();
        }

        public long bytes() {
            return to.bytes();
        }
    }

    public SparkPlan leaf(SparkPlan made, int stage, int partition) {
        return made;
    }
}
