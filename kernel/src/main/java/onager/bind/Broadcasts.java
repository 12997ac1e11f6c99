package onager.bind;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskKilledException;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;

/**
 * What this executor has broadcast: each once for a job, however many of its stages and tasks read it, until the job is closed.
 * Spark may put what no task reads right now on disk.
 */
public final class Broadcasts {
    private static final String GROUP = SparkContext$.MODULE$.SPARK_JOB_GROUP_ID();
    /** Of the heap, for what is read at a time. Spark's own memory, which tasks sort and aggregate in, is 60 % of it and evicts the rest. */
    private static final double SHARE = 0.4;
    /** As many as Spark remembers, too. */
    private static final int MOST_CANCELLED = 1000;

    /** One of them. */
    public static final class Shared {
        final BroadcastExchangeExec exchange;
        private final String job;
        private final Object key;
        private final String group;
        private final long bytes;
        private final Set<String> waiting = new HashSet<>(); // the job groups of stages that are being bound
        private int stages = 0; // that are bound
        private int runs = 0; // task sets of theirs

        private Shared(String job, Object key, BroadcastExchangeExec exchange, String group, long bytes) {
            this.job = job;
            this.key = key;
            this.exchange = exchange;
            this.group = group;
            this.bytes = bytes;
        }

        private Broadcast<?> value() {
            var future = exchange.relationFuture();
            try {
                return future.isDone() ? future.get() : null;
            } catch (Exception e) {
                return null;
            }
        }

        private boolean hasFailed() {
            return exchange.relationFuture().isDone() && value() == null;
        }
    }

    private final SparkContext sc;
    private final Map<Object, Shared> held = new HashMap<>(); // by key
    /** The job groups that were cancelled last. A group is that of one binding, which may still be at it. */
    private final Set<String> cancelled = new LinkedHashSet<>();
    private long count = 0;
    private volatile long most = (long) (SHARE * Runtime.getRuntime().maxMemory());

    public Broadcasts(SparkContext sc) {
        this.sc = sc;
    }

    /** Hold at most *bytes* at a time, about. */
    public void limit(long bytes) {
        most = bytes;
    }

    /** Return how many bytes a stage may broadcast that broadcasts *keys*: what others' tasks read at the moment is taken. */
    synchronized long left(Collection<Object> keys) {
        return most - held.values().stream()
                .filter(shared -> (shared.runs > 0 || !shared.waiting.isEmpty()) && !keys.contains(shared.key))
                .mapToLong(shared -> shared.bytes).sum();
    }

    /**
     * Return the broadcast *key* of *job*; where it is new *make* makes it, and it begins to be built, in a job group of its own. The stage
     * that is being bound in the job group *group* waits for it.
     */
    synchronized Shared get(String job, Object key, String group, long bytes, Supplier<BroadcastExchangeExec> make) {
        check(group);
        Shared shared = held.get(key);
        if (shared == null) {
            count++;
            shared = new Shared(job, key, make.get(), "broadcast/" + job + "/" + count, bytes);
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
    synchronized List<Shared> bound(String group) {
        check(group);
        var mine = new ArrayList<Shared>();
        for (Shared shared : held.values()) {
            if (shared.waiting.remove(group)) {
                shared.stages++;
                mine.add(shared);
            }
        }
        return mine;
    }

    private void check(String group) {
        if (cancelled.contains(group)) {
            throw new TaskKilledException("cancelled");
        }
    }

    /** Note that nobody wants the stage of a job group any more, which may be being bound. */
    public synchronized void cancel(String group) {
        cancelled.add(group);
        if (cancelled.size() > MOST_CANCELLED) {
            cancelled.remove(cancelled.iterator().next());
        }
        giveUp(group);
    }

    /** Note that the stage of a job group will not be bound: stop what nobody else waits for, and keep nothing that failed. */
    synchronized void giveUp(String group) {
        drop(shared -> shared.waiting.remove(group) && (shared.hasFailed() || shared.waiting.isEmpty() && shared.stages == 0));
    }

    /** Note that a task set begins, or by -1 ends, that reads *some*. */
    public synchronized void run(List<Shared> some, int change) {
        some.forEach(shared -> shared.runs += change);
    }

    /** Give back all of a job. */
    public synchronized void closeJob(String job) {
        drop(shared -> shared.job.equals(job));
    }

    /** Return {broadcasts that are held, those ever begun, bytes of memory that Spark holds for them}. */
    public synchronized long[] use() {
        return new long[] {held.size(), count, SparkEnv.get().memoryManager().storageMemoryUsed()};
    }

    private void drop(Predicate<Shared> which) {
        held.values().removeIf(shared -> {
            boolean isOver = which.test(shared);
            Broadcast<?> value = isOver ? shared.value() : null;
            if (value != null) {
                value.destroy();
            } else if (isOver) {
                sc.cancelJobGroupAndFutureJobs(shared.group);
            }
            return isOver;
        });
    }
}
