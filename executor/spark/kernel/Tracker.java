package onager.kernel;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/** Knows which Spark task runs which partition of which run, so that a single one can be stopped. */
public final class Tracker extends SparkListener {
    static final String RUN = "onager.run";

    private final SparkContext sc;
    private final Map runOfStage = new HashMap();
    private final Map tasks = new HashMap();

    Tracker(SparkContext sc) {
        this.sc = sc;
    }

    public synchronized void onStageSubmitted(SparkListenerStageSubmitted e) {
        String run = e.properties() == null ? null : e.properties().getProperty(RUN);
        if (run != null) {
            runOfStage.put(Integer.valueOf(e.stageInfo().stageId()), run);
        }
    }

    public synchronized void onTaskStart(SparkListenerTaskStart e) {
        String run = (String) runOfStage.get(Integer.valueOf(e.stageId()));
        if (run != null) {
            String key = run + "/" + e.taskInfo().partitionId();
            Long before = (Long) tasks.put(key, Long.valueOf(e.taskInfo().taskId()));
            if (before == null && Task.UNWANTED.contains(key)) {
                sc.killTaskAttempt(e.taskInfo().taskId(), true, "cancelled");
            }
        }
    }

    synchronized void kill(String run, int partition) {
        Long task = (Long) tasks.get(run + "/" + partition);
        if (task != null) {
            sc.killTaskAttempt(task.longValue(), true, "cancelled");
        }
    }

    synchronized void forget(String run) {
        Iterator stages = runOfStage.values().iterator();
        while (stages.hasNext()) {
            if (run.equals(stages.next())) {
                stages.remove();
            }
        }
        Iterator keys = tasks.keySet().iterator();
        while (keys.hasNext()) {
            if (((String) keys.next()).startsWith(run + "/")) {
                keys.remove();
            }
        }
    }
}
