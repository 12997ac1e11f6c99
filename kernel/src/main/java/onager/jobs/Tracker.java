package onager.jobs;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/** Maps each partition of a run to its Spark task, so that a single partition can be killed. */
public final class Tracker extends SparkListener {
    static final String RUN = "onager.run";

    private final SparkContext sc;
    private final Map<Integer, String> runOfStage = new HashMap<>();
    private final Map<String, Long> tasks = new HashMap<>();

    Tracker(SparkContext sc) {
        this.sc = sc;
    }

    @Override
    public synchronized void onStageSubmitted(SparkListenerStageSubmitted e) {
        String run = e.properties() == null ? null : e.properties().getProperty(RUN);
        if (run != null) {
            runOfStage.put(e.stageInfo().stageId(), run);
        }
    }

    @Override
    public synchronized void onTaskStart(SparkListenerTaskStart e) {
        String run = runOfStage.get(e.stageId());
        if (run != null) {
            String key = run + "/" + e.taskInfo().partitionId();
            Long before = tasks.put(key, e.taskInfo().taskId());
            if (before == null && UnwantedTasks.UNWANTED.contains(key)) {
                sc.killTaskAttempt(e.taskInfo().taskId(), true, "cancelled");
            }
        }
    }

    public synchronized void kill(String run, int partition) {
        Long task = tasks.get(run + "/" + partition);
        if (task != null) {
            sc.killTaskAttempt(task, true, "cancelled");
        }
    }

    synchronized void forget(String run) {
        runOfStage.values().removeIf(run::equals);
        tasks.keySet().removeIf(key -> key.startsWith(run + "/"));
    }
}
