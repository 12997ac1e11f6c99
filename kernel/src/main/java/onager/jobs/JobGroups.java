package onager.jobs;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeoutException;
import onager.spark43.ProgramFiles;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/** The Spark job groups in which threads of this executor run Spark jobs, each with its own scheduler pool. */
public final class JobGroups {
    private static final long CATCH_UP_MS = 10_000L;
    private static final String POOL = SparkContext$.MODULE$.SPARK_SCHEDULER_POOL();

    private final SparkContext sc;
    private final Tracker tracker;
    private final GroupProgress progress;
    private final Pools pools = new Pools();
    private final Map<String, Thread> controls = new HashMap<>(); // threads that plan jobs

    public JobGroups(SparkContext sc) {
        this.sc = sc;
        this.tracker = new Tracker(sc);
        this.progress = new GroupProgress(sc);
        sc.addSparkListener(tracker);
    }

    public Tracker tracker() {
        return tracker;
    }

    public GroupProgress progress() {
        return progress;
    }

    /** Wait for tasks of runs to end, and restore the context; return how many tasks still run after *waitMs*. */
    public int close(long waitMs) throws InterruptedException, TimeoutException {
        if (waitMs > 0L) {
            sc.listenerBus().waitUntilEmpty(waitMs); // by then all task starts are known
        }
        int left = tracker.awaitEnd(waitMs);
        sc.removeSparkListener(tracker);
        return left;
    }

    /**
     * Make a session over *base*'s context with the settings *conf*, a JSON object. Settings of Spark SQL that this process was started
     * with, and that are not in *conf*, return to Spark's defaults, since the stage was planned without them. It has the files that
     * `ProgramFiles.KEY` names.
     */
    public SparkSession session(SparkSession base, String conf) throws IOException, IllegalAccessException {
        var session = base.newSession();
        SQLConf settings = session.sessionState().conf();
        var given = Json.tree(conf);
        for (String key : Seqs.each(settings.getAllConfs().keysIterator())) {
            if (key.startsWith("spark.sql.") && !given.has(key) && !SQLConf.isStaticConfigKey(key)) {
                settings.unsetConf(key);
            }
        }
        given.properties().forEach(each -> settings.setConfString(each.getKey(), each.getValue().asText()));
        if (given.has(ProgramFiles.KEY)) {
            ProgramFiles.give(session, given.get(ProgramFiles.KEY).asText(), List.of());
        }
        return session;
    }

    /** Do *work* on this thread under *session*'s settings, in the job group *group* and with its own scheduler pool. */
    public <T> T within(SparkSession session, String group, Callable<T> work) throws Exception {
        return within(session, group, null, work);
    }

    /** The same for the tasks of *attempts* (see `Attempt.NAMES`), which log under their names. */
    public <T> T within(SparkSession session, String group, String attempts, Callable<T> work) throws Exception {
        String pool = pools.take();
        try {
            enter(session, group, pool);
            sc.setLocalProperty(Attempt.NAMES, attempts);
            return work.call();
        } finally {
            pools.give(pool);
            tracker.forget(group);
        }
    }

    /** Return a scheduler pool that nothing else uses. */
    /** Run this thread's Spark jobs under *session*'s settings, in the job group *group* and the scheduler pool *pool*. */
    private void enter(SparkSession session, String group, String pool) {
        var p = new Properties();
        for (var setting : Seqs.each(session.sessionState().conf().getAllConfs().iterator())) {
            if (setting._1().startsWith("spark.")) {
                p.setProperty(setting._1(), setting._2());
            }
        }
        p.setProperty(SparkContext$.MODULE$.SPARK_JOB_GROUP_ID(), group);
        p.setProperty(SparkContext$.MODULE$.SPARK_JOB_DESCRIPTION(), "onager " + group);
        p.setProperty(SparkContext$.MODULE$.SPARK_JOB_INTERRUPT_ON_CANCEL(), "true");
        p.setProperty(tracker.property, group);
        p.setProperty(POOL, pool);
        sc.setLocalProperties(p);
        org.apache.spark.sql.SparkSession.setActiveSession(session);
    }

    /** Run this thread's Spark jobs in the job group *group* until `leaveControl`; they and it log as *attempt*. */
    public void enterControl(String group, String description, String attempt) {
        sc.setJobGroup(group, description, true);
        sc.setLocalProperty(Attempt.NAME, attempt);
        Attempt.enter(attempt);
        sc.setLocalProperty(POOL, pools.take());
        sc.setLocalProperty(tracker.property, group);
        synchronized (controls) {
            controls.put(group, Thread.currentThread());
        }
    }

    /**
     * Wait until no Spark task of *group* goes on. Spark ends a job that was cancelled, or has failed, without waiting for its tasks, which
     * keep their threads. *wasCancelled*: some may have begun a moment ago.
     */
    public void awaitControl(String group, boolean wasCancelled) {
        while (true) {
            try {
                Thread.interrupted(); // that of the cancellation; others may follow
                if (wasCancelled) {
                    tracker.catchUp(CATCH_UP_MS);
                }
                tracker.awaitEnd(group);
                return;
            } catch (InterruptedException e) {
                continue; // it was cancelled once more
            }
        }
    }

    public void leaveControl(String group) {
        synchronized (controls) {
            controls.remove(group);
            Thread.interrupted(); // a late interrupt must not reach the thread's next task
        }
        sc.clearJobGroup();
        pools.give(sc.getLocalProperty(POOL));
        sc.setLocalProperty(POOL, null);
        sc.setLocalProperty(tracker.property, null);
        tracker.forget(group);
        sc.setLocalProperty(Attempt.NAME, null);
        Attempt.leave();
    }

    /** Cancel the running and future Spark jobs of *group*, and interrupt its thread. */
    public void cancelControl(String group) {
        sc.cancelJobGroupAndFutureJobs(group, "cancelled");
        synchronized (controls) {
            Thread thread = controls.get(group);
            if (thread != null) {
                thread.interrupt();
            }
        }
    }
}
