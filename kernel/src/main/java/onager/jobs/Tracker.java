package onager.jobs;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/** Maps each partition of a run to its Spark task, so that a single partition can be killed. */
public final class Tracker extends SparkListener {
    private static final AtomicInteger COUNT = new AtomicInteger();

    /** The property of Spark jobs that says of which run of this executor's they are. */
    final String property = "onager.run." + COUNT.incrementAndGet();

    private final SparkContext sc;
    private final Map<Integer, String> runOfStage = new HashMap<>();
    private final Map<String, Long> tasks = new HashMap<>();
    private final Set<Long> running = new HashSet<>();

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
            running.add(e.taskInfo().taskId());
            String key = run + "/" + e.taskInfo().partitionId();
            Long before = tasks.put(key, e.taskInfo().taskId());
            if (before == null && UnwantedTasks.UNWANTED.contains(key)) {
                sc.killTaskAttempt(e.taskInfo().taskId(), true, "cancelled");
            }
        }
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd e) {
        running.remove(e.taskInfo().taskId());
        notifyAll();
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

    synchronized void forget(String run) {
        tasks.keySet().removeIf(key -> key.startsWith(run + "/"));
    }
}
