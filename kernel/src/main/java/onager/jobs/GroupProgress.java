package onager.jobs;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import onager.values.Seqs;
import org.apache.spark.SparkContext$;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/** How far queries are that run whole, each in its job group: Spark's stages count alike, and each to the part of its tasks that are done. */
public final class GroupProgress extends SparkListener {
    private final Map<String, Group> groups = new HashMap<>();
    private final Map<Integer, Group> groupOfStage = new HashMap<>();
    private final Map<Integer, List<Integer>> stagesOfJob = new HashMap<>();

    /** *permille* of the query; *rows* and *bytes* that ended tasks read from sources. */
    public record Progress(long permille, long rows, long bytes) {}

    private static final class Stage {
        private final int tasks;
        private int done = 0;

        Stage(int tasks) {
            this.tasks = tasks;
        }
    }

    private static final class Group {
        private final int expected;
        private final Map<Integer, Stage> stages = new HashMap<>();
        private long rows = 0;
        private long bytes = 0;

        Group(int expected) {
            this.expected = expected;
        }

        Progress progress() {
            double done = stages.values().stream().mapToDouble(stage -> stage.tasks == 0 ? 1.0 : (double) stage.done / stage.tasks).sum();
            return new Progress((long) (1000 * done / Math.max(1, Math.max(expected, stages.size()))), rows, bytes);
        }
    }

    /** Follow the Spark jobs of *group* that start from now on; *expected*: how many stages they are likely to have. */
    public synchronized void begin(String group, int expected) {
        groups.put(group, new Group(expected));
    }

    public synchronized void end(String group) {
        Group gone = groups.remove(group);
        groupOfStage.values().removeIf(found -> found == gone);
    }

    public synchronized Map<String, Progress> now() {
        var found = new HashMap<String, Progress>();
        groups.forEach((name, group) -> found.put(name, group.progress()));
        return found;
    }

    @Override
    public synchronized void onJobStart(SparkListenerJobStart e) {
        String name = e.properties() == null ? null : e.properties().getProperty(SparkContext$.MODULE$.SPARK_JOB_GROUP_ID());
        Group group = name == null ? null : groups.get(name);
        if (group != null) {
            var found = Seqs.list(e.stageInfos());
            for (var stage : found) { // one of an earlier job is skipped, and done
                group.stages.computeIfAbsent(stage.stageId(), id -> new Stage(stage.numTasks()));
                groupOfStage.put(stage.stageId(), group);
            }
            stagesOfJob.put(e.jobId(), found.stream().map(stage -> stage.stageId()).toList());
        }
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd e) {
        Group group = groupOfStage.get(e.stageId());
        if (group != null && e.taskInfo().successful()) {
            Stage stage = group.stages.get(e.stageId());
            stage.done = Math.min(stage.tasks, stage.done + 1);
            var m = e.taskMetrics();
            group.rows += m == null ? 0L : m.inputMetrics().recordsRead();
            group.bytes += m == null ? 0L : m.inputMetrics().bytesRead();
        }
    }

    @Override
    public synchronized void onJobEnd(SparkListenerJobEnd e) {
        List<Integer> ended = stagesOfJob.remove(e.jobId());
        if (ended != null) {
            for (int id : ended) {
                Group group = groupOfStage.get(id);
                if (group != null) {
                    Stage stage = group.stages.get(id);
                    stage.done = stage.tasks; // what is left of it was skipped
                }
            }
        }
    }
}
