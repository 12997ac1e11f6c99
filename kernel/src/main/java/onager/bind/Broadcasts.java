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
 * The broadcasts of this executor. All stages and tasks of a job share a broadcast, which is kept until the job is closed. Spark may move
 * one that no task reads to disk.
 */
public final class Broadcasts {
    private static final String GROUP = SparkContext$.MODULE$.SPARK_JOB_GROUP_ID();
    /** The share of the heap for broadcasts in use. Spark's memory for sorts and aggregates is 60 % of the heap, and evicts other blocks. */
    private static final double SHARE = 0.4;
    /** As many as Spark remembers. */
    private static final int MAX_CANCELLED = 1000;

    /** A broadcast that stages share. */
    public static final class Shared {
        final BroadcastExchangeExec exchange;
        private final String job;
        private final Object key;
        private final String group;
        private final long bytes;
        private final Set<String> waiting = new HashSet<>(); // the job groups of stages that are being bound
        private int stages = 0; // the bound stages that read it
        private int runs = 0; // the running task sets of these stages

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
    /** The job groups that were cancelled last. Each belongs to one binding, which may still be in progress. */
    private final Set<String> cancelled = new LinkedHashSet<>();
    private long count = 0;
    private volatile long most = (long) (SHARE * Runtime.getRuntime().maxMemory());

    public Broadcasts(SparkContext sc) {
        this.sc = sc;
    }

    /** Limit broadcasts to about *bytes* at a time. */
    public void limit(long bytes) {
        most = bytes;
    }

    /** Return how many bytes a stage that broadcasts *keys* may use; what running tasks of other stages read is subtracted. */
    synchronized long left(Collection<Object> keys) {
        return most - held.values().stream()
                .filter(shared -> (shared.runs > 0 || !shared.waiting.isEmpty()) && !keys.contains(shared.key))
                .mapToLong(shared -> shared.bytes).sum();
    }

    /**
     * Return the broadcast *key* of *job*. A new one is made by *make*, and built in its own job group. The stage that is being bound in the
     * job group *group* waits for it.
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

    /** Record that the stage of a job group is bound; return the broadcasts that it reads. */
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

    /** Record that the stage of a job group, whose binding may be in progress, is no longer wanted. */
    public synchronized void cancel(String group) {
        cancelled.add(group);
        if (cancelled.size() > MAX_CANCELLED) {
            cancelled.remove(cancelled.iterator().next());
        }
        giveUp(group);
    }

    /** Record that the stage of a job group will not be bound: stop broadcasts that no other stage waits for, and drop failed ones. */
    synchronized void giveUp(String group) {
        drop(shared -> shared.waiting.remove(group) && (shared.hasFailed() || shared.waiting.isEmpty() && shared.stages == 0));
    }

    /** Record that a task set that reads *some* starts (*change* 1) or ends (-1). */
    public synchronized void run(List<Shared> some, int change) {
        some.forEach(shared -> shared.runs += change);
    }

    /** Release all broadcasts of a job. */
    public synchronized void closeJob(String job) {
        drop(shared -> shared.job.equals(job));
    }

    /** Return {broadcasts held, broadcasts ever started, bytes of memory that Spark holds for them}. */
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
