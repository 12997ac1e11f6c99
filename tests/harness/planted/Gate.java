package planted;

import java.util.ArrayList;
import java.util.List;
import onager.rows.ExchangeSink;
import onager.rows.Frame;
import onager.testing.Interposer;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Holds a stage's tasks before their first row until those that write have no room left, and counts what they write. */
public class Gate implements Interposer {
    private int held;
    private int stage;
    private int tasks;
    private int capacityFrames;
    private long capacityBytes;
    private boolean isForGood;
    private boolean isOpen = false;
    private final List sinks = new ArrayList();

    public Gate of(int held, int stage, int tasks, int capacityFrames, long capacityBytes, boolean isForGood) {
        this.held = held;
        this.stage = stage;
        this.tasks = tasks;
        this.capacityFrames = capacityFrames;
        this.capacityBytes = capacityBytes;
        this.isForGood = isForGood;
        return this;
    }

    /** Whether every task that writes is at its end, or waits for room in a channel that has had as much as it takes. */
    public synchronized boolean isStuck() {
        int stuck = 0;
        for (int i = 0; i < sinks.size(); i++) {
            stuck += ((Sink) sinks.get(i)).isStuck() ? 1 : 0;
        }
        return stuck == tasks;
    }

    public synchronized List frames() {
        List all = new ArrayList();
        for (int i = 0; i < sinks.size(); i++) {
            all.addAll(((Sink) sinks.get(i)).frames);
        }
        return all;
    }

    public synchronized List bytes() {
        List all = new ArrayList();
        for (int i = 0; i < sinks.size(); i++) {
            all.addAll(((Sink) sinks.get(i)).bytes);
        }
        return all;
    }

    private void hold() {
        while (true) {
            synchronized (this) {
                isOpen = isOpen || !isForGood && isStuck();
                if (isOpen) {
                    return;
                }
            }
            try {
                Thread.sleep(1L);
            } catch (InterruptedException e) {
                throw new TaskKilledException("stopped at the gate");
            }
        }
    }

    public Iterator rows(Iterator made, int stage, int partition) {
        return stage == held ? new Rows(made) : made;
    }

    private class Rows extends AbstractIterator {
        private final Iterator rows;

        Rows(Iterator rows) {
            this.rows = rows;
        }

        public boolean hasNext() {
            hold();
            return rows.hasNext();
        }

        public Object next() {
            return rows.next();
        }
    }

    public ExchangeSink sink(ExchangeSink made, int stage, int partition) {
        if (stage != this.stage) {
            return made;
        }
        Sink sink = new Sink(made);
        synchronized (this) {
            sinks.add(sink);
        }
        return sink;
    }

    private class Sink implements ExchangeSink {
        private final ExchangeSink to;
        private final List frames = new ArrayList();
        private final List bytes = new ArrayList();
        private Thread putting = null;
        private int into = 0;
        private boolean isOver = false;

        Sink(ExchangeSink to) {
            this.to = to;
        }

        boolean isStuck() {
            return isOver || putting != null && putting.getState() == Thread.State.WAITING
                    && (number(frames) >= capacityFrames || number(bytes) >= capacityBytes);
        }

        private long number(List of) {
            return into < of.size() ? ((Long) of.get(into)).longValue() : 0L;
        }

        private void add(List to, int bucket, long more) {
            while (to.size() <= bucket) {
                to.add(Long.valueOf(0L));
            }
            to.set(bucket, Long.valueOf(((Long) to.get(bucket)).longValue() + more));
        }

        public boolean put(int bucket, Frame frame) throws java.io.IOException, InterruptedException {
            synchronized (Gate.this) {
                putting = Thread.currentThread();
                into = bucket;
            }
            boolean isTaken = to.put(bucket, frame);
            synchronized (Gate.this) {
                putting = null;
                if (!isOpen && isTaken) {
                    add(frames, bucket, 1L);
                    add(bytes, bucket, frame.size());
                }
            }
            return isTaken;
        }

        public void finish(long[] rows) throws java.io.IOException, InterruptedException {
            synchronized (Gate.this) {
                isOver = true;
            }
            to.finish(rows);
        }

        public void abort(Throwable why) {
            synchronized (Gate.this) {
                isOver = true;
            }
            to.abort(why);
        }

        public long bytes() {
            return to.bytes();
        }
    }

    public SparkPlan leaf(SparkPlan made, int stage, int partition) {
        return made;
    }
}
