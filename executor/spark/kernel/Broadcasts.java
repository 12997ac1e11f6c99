package onager.kernel;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;

/**
 * What this executor has broadcast: each once for a job, however many of its stages and tasks read it, until the job is closed.
 * Spark may put what no task reads right now on disk.
 */
final class Broadcasts {
    private static final String GROUP = "spark.jobGroup.id";
    /** Of the heap, for what is read at a time. Spark's own memory, which tasks sort and aggregate in, is 60 % of it and evicts the rest. */
    private static final double SHARE = 0.4;
    /** As many as Spark remembers, too. */
    private static final int MOST_CANCELLED = 1000;

    /** Makes an exchange that is not there yet. */
    interface Maker {
        BroadcastExchangeExec make();
    }

    /** One of them. */
    static final class Shared {
        final String job;
        final BroadcastExchangeExec exchange;
        private final Object key;
        private final String group;
        private final long bytes;
        private final Set waiting = new HashSet(); // the job groups of stages that are being bound
        private int stages = 0; // that are bound
        private int runs = 0; // task sets of theirs

        Shared(String job, Object key, BroadcastExchangeExec exchange, String group, long bytes) {
            this.job = job;
            this.key = key;
            this.exchange = exchange;
            this.group = group;
            this.bytes = bytes;
        }

        private Broadcast value() {
            Future future = exchange.relationFuture();
            try {
                return future.isDone() ? (Broadcast) future.get() : null;
            } catch (Exception e) {
                return null;
            }
        }

        private boolean hasFailed() {
            return exchange.relationFuture().isDone() && value() == null;
        }
    }

    private final SparkContext sc;
    private final Map held = new HashMap(); // by key
    /** The job groups that were cancelled last. A group is that of one binding, which may still be at it. */
    private final Map cancelled = new LinkedHashMap() {
        protected boolean removeEldestEntry(Map.Entry eldest) {
            return size() > MOST_CANCELLED;
        }
    };
    private long count = 0;
    private volatile long most = (long) (SHARE * Runtime.getRuntime().maxMemory());

    Broadcasts(SparkContext sc) {
        this.sc = sc;
    }

    /** Hold at most *bytes* at a time, about. */
    void limit(long bytes) {
        most = bytes;
    }

    /** Return how many bytes a stage may broadcast that broadcasts *keys*: what others' tasks read at the moment is taken. */
    synchronized long left(Collection keys) {
        long used = 0;
        Iterator each = held.values().iterator();
        while (each.hasNext()) {
            Shared shared = (Shared) each.next();
            if ((shared.runs > 0 || !shared.waiting.isEmpty()) && !keys.contains(shared.key)) {
                used += shared.bytes;
            }
        }
        return most - used;
    }

    /**
     * Return the broadcast *key* of *job*; where it is new it begins to be built, in a job group of its own. The stage that is being
     * bound in the job group *group* waits for it.
     */
    synchronized Shared get(String job, Object key, String group, long bytes, Maker maker) {
        check(group);
        Shared shared = (Shared) held.get(key);
        if (shared == null) {
            count++;
            shared = new Shared(job, key, maker.make(), "broadcast/" + job + "/" + count, bytes);
            String before = sc.getLocalProperty(GROUP);
            sc.setLocalProperty(GROUP, shared.group);
            try {
                shared.exchange.prepare();
            } finally {
                sc.setLocalProperty(GROUP, before);
            }
            held.put(key, shared);
        }
        shared.waiting.add(group);
        return shared;
    }

    /** Note that the stage of a job group is bound; return the broadcasts that it reads. */
    synchronized List bound(String group) {
        check(group);
        List mine = new ArrayList();
        Iterator each = held.values().iterator();
        while (each.hasNext()) {
            Shared shared = (Shared) each.next();
            if (shared.waiting.remove(group)) {
                shared.stages++;
                mine.add(shared);
            }
        }
        return mine;
    }

    private void check(String group) {
        if (cancelled.containsKey(group)) {
            throw new TaskKilledException("cancelled");
        }
    }

    /** Note that nobody wants the stage of a job group any more, which may be being bound. */
    synchronized void cancel(String group) {
        cancelled.put(group, Boolean.TRUE);
        giveUp(group);
    }

    /** Note that the stage of a job group will not be bound: stop what nobody else waits for, and keep nothing that failed. */
    synchronized void giveUp(String group) {
        Iterator each = held.values().iterator();
        while (each.hasNext()) {
            Shared shared = (Shared) each.next();
            if (shared.waiting.remove(group) && (shared.hasFailed() || shared.waiting.isEmpty() && shared.stages == 0)) {
                each.remove();
                drop(shared);
            }
        }
    }

    /** Note that a task set begins, or by -1 ends, that reads *some*. */
    synchronized void run(List some, int change) {
        for (int i = 0; i < some.size(); i++) {
            ((Shared) some.get(i)).runs += change;
        }
    }

    /** Give back all of a job. */
    synchronized void closeJob(String job) {
        Iterator each = held.values().iterator();
        while (each.hasNext()) {
            Shared shared = (Shared) each.next();
            if (shared.job.equals(job)) {
                each.remove();
                drop(shared);
            }
        }
    }

    /** Return {broadcasts that are held, those ever begun}. */
    synchronized long[] use() {
        return new long[] {held.size(), count};
    }

    private void drop(Shared shared) {
        Broadcast value = shared.value();
        if (value != null) {
            value.destroy();
        } else {
            sc.cancelJobGroupAndFutureJobs(shared.group);
        }
    }
}
