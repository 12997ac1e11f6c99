package onager.jobs;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/** Maps each partition of a run to its Spark tasks, so that a single partition can be killed, and it is known when its tasks have ended. */
public final class Tracker extends SparkListener {
    private static final AtomicInteger COUNT = new AtomicInteger();

    /** The property of Spark jobs that says of which run of this executor's they are. */
    final String property = "onager.run." + COUNT.incrementAndGet();

    private final SparkContext sc;
    private final Map<Integer, String> runOfStage = new HashMap<>();
    private final Map<String, Long> tasks = new HashMap<>();
    private final Map<Long, Place> running = new HashMap<>();
    private BiConsumer<String, Integer> whenEnded = (run, partition) -> {};

    private record Place(String run, int partition) {}

    Tracker(SparkContext sc) {
        this.sc = sc;
    }

    @Override
    public synchronized void onStageSubmitted(SparkListenerStageSubmitted e) {
        String run = e.properties() == null ? null : e.properties().getProperty(property);
        if (run != null) {
            runOfStage.put(e.stageInfo().stageId(), run);
        }
    }

    @Override
    public synchronized void onStageCompleted(SparkListenerStageCompleted e) {
        runOfStage.remove(e.stageInfo().stageId()); // the tasks of a cancelled one may run on, but none starts any more
    }

    @Override
    public synchronized void onTaskStart(SparkListenerTaskStart e) {
        String run = runOfStage.get(e.stageId());
        if (run != null) {
            running.put(e.taskInfo().taskId(), new Place(run, e.taskInfo().partitionId()));
            String key = run + "/" + e.taskInfo().partitionId();
            Long before = tasks.put(key, e.taskInfo().taskId());
            if (before == null && UnwantedTasks.UNWANTED.contains(key)) {
                sc.killTaskAttempt(e.taskInfo().taskId(), true, "cancelled");
            }
        }
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd e) {
        Place ended;
        BiConsumer<String, Integer> listener;
        synchronized (this) {
            ended = running.remove(e.taskInfo().taskId());
            if (ended != null) { // unless it runs again; its run may have been forgotten before it began
                tasks.remove(ended.run + "/" + ended.partition, e.taskInfo().taskId());
            }
            listener = whenEnded;
            notifyAll();
        }
        if (ended != null) {
            listener.accept(ended.run, ended.partition);
        }
    }

    /** Whether a task of the partition goes on. */
    public synchronized boolean runs(String run, int partition) {
        return running.containsValue(new Place(run, partition));
    }

    /** Call *listener* with the run and the partition of each task that has ended, without a lock. */
    public synchronized void whenEnded(BiConsumer<String, Integer> listener) {
        whenEnded = listener;
    }

    /** Wait until all that Spark has done up to now is known here, at most *waitMs*. */
    public void catchUp(long waitMs) throws InterruptedException {
        try {
            sc.listenerBus().waitUntilEmpty(waitMs);
        } catch (TimeoutException e) {
            Thread.yield(); // Spark is busy: what it has done will be known later
        }
    }

    public synchronized void kill(String run, int partition) {
        Long task = tasks.get(run + "/" + partition);
        if (task != null) {
            sc.killTaskAttempt(task, true, "cancelled");
        }
    }

    /** Wait until no task of a run goes on; return how many still do after *waitMs*. */
    synchronized int awaitEnd(long waitMs) throws InterruptedException {
        long until = System.nanoTime() + waitMs * 1_000_000L;
        for (long left = waitMs; !running.isEmpty() && left > 0L; left = (until - System.nanoTime()) / 1_000_000L) {
            wait(left);
        }
        return running.size();
    }

    /** Wait until no task of *run* goes on, however long that takes. */
    synchronized void awaitEnd(String run) throws InterruptedException {
        while (running.values().stream().anyMatch(place -> place.run.equals(run))) {
            wait();
        }
    }

    synchronized void forget(String run) {
        tasks.keySet().removeIf(key -> key.startsWith(run + "/"));
    }
}
