package onager.jobs;

import java.util.HashMap;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import onager.values.Seqs;
import org.apache.spark.JobExecutionStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;

/**
 * The progress of single-stage queries, each in its own job group, as Spark's status store has it. Spark's stages count alike, and each to
 * the part of its tasks that are done.
 */
public final class GroupProgress {
    private final SparkContext sc;
    private final Map<String, Group> groups = new ConcurrentHashMap<>();

    GroupProgress(SparkContext sc) {
        this.sc = sc;
    }

    /** *expected*: how many stages its jobs are likely to have; *sinceMs*: earlier jobs do not count. */
    private record Group(int expected, long sinceMs) {
        boolean has(JobData job) {
            return job.submissionTime().isDefined() && job.submissionTime().get().getTime() >= sinceMs;
        }
    }

    /** *permille* of the query; *rows* and *bytes* that were read from sources. */
    public record Progress(long permille, long rows, long bytes) {}

    /** Do *work* in this thread's job group, and follow its Spark jobs, which are likely to have *expected* stages. */
    public <T> T followed(int expected, Callable<T> work) throws Exception {
        String group = sc.getLocalProperty(SparkContext$.MODULE$.SPARK_JOB_GROUP_ID());
        if (group == null) {
            return work.call();
        }
        groups.put(group, new Group(expected, System.currentTimeMillis()));
        try {
            return work.call();
        } finally {
            groups.remove(group);
        }
    }

    public Map<String, Progress> now() {
        var found = new HashMap<String, Progress>();
        groups.forEach((name, group) -> found.put(name, progress(name, group)));
        return found;
    }

    private Progress progress(String name, Group group) {
        var done = new HashMap<Object, Double>();
        var stages = new HashMap<Object, StageData>();
        for (JobData job : Seqs.list(sc.statusStore().jobsList(null))) {
            if (job.jobGroup().contains(name) && group.has(job)) {
                boolean isOver = job.status() != JobExecutionStatus.RUNNING; // stages of an earlier job are skipped, and done
                for (Object id : Seqs.list(job.stageIds())) {
                    StageData stage = stages.computeIfAbsent(id, this::stage);
                    boolean isDone = isOver || stage == null || stage.numTasks() == 0;
                    done.merge(id, isDone ? 1.0 : (double) stage.numCompleteTasks() / stage.numTasks(), Math::max);
                }
            }
        }
        double sum = done.values().stream().mapToDouble(Double::doubleValue).sum();
        return new Progress((long) (1000 * sum / Math.max(1, Math.max(group.expected, done.size()))),
                stages.values().stream().mapToLong(StageData::inputRecords).sum(), stages.values().stream().mapToLong(StageData::inputBytes).sum());
    }

    /** Return what is known of a stage; null if Spark has forgotten it, which is over then. */
    private StageData stage(Object id) {
        try {
            return sc.statusStore().lastStageAttempt((Integer) id);
        } catch (NoSuchElementException e) {
            return null;
        }
    }
}
