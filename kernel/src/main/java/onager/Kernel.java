package onager;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.TimeoutException;
import onager.bind.Bound;
import onager.bind.Broadcasts;
import onager.bind.Stages;
import onager.failure.Failures;
import onager.jobs.JobGroups;
import onager.run.Outputs;
import onager.run.Probe;
import onager.run.Runs;
import onager.run.Whole;
import onager.run.WriteResult;
import onager.spark43.Lookups;
import onager.store.Store;
import onager.stream.StreamedTasks;
import onager.stream.Streams;
import onager.values.Json;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.SerializableConfiguration;

/**
 * What Python calls of an executor. Every method takes and gives few, plain values, because a call costs a tenth of a millisecond and
 * more: structures travel as JSON, results of many tasks in one answer.
 */
public final class Kernel {
    private final SparkContext sc;
    private final Store store;
    private final JobGroups groups;
    private final Broadcasts broadcasts;
    private final Stages stages;
    private final Outputs outputs;
    private final Runs runs;
    private volatile Streams streams = null;

    /** *writer*: the life of this executor. */
    public Kernel(SparkContext sc, String exchangeDir, int slots, String writer) {
        this.sc = sc;
        this.store = new Store(exchangeDir, new SerializableConfiguration(new Configuration(sc.hadoopConfiguration())), writer);
        this.groups = new JobGroups(sc);
        this.broadcasts = new Broadcasts(sc);
        this.stages = new Stages(sc, store, slots, broadcasts, groups, this::streams);
        this.outputs = new Outputs(store, this::streams);
        this.runs = new Runs(sc, outputs, broadcasts, groups);
    }

    /** Raise what this Spark lacks of what is found by its name; *classes*: operators and partitionings that the planner knows. */
    public static void check(SparkSession session, List<String> classes) {
        Lookups.check(session, classes);
    }

    /**
     * Wait until no task of this kernel goes on, and leave the context as it was before it came; what was begun has to be cancelled. Return
     * how many tasks run on after *waitMs*.
     */
    public int close(long waitMs) throws InterruptedException, TimeoutException {
        runs.close();
        stopStreams();
        return groups.close(waitMs);
    }

    // ------------------------------------------------------------ stages and their tasks

    /** As `JobGroups.session`. */
    public SparkSession session(SparkSession base, String conf) throws IOException {
        return groups.session(base, conf);
    }

    /** As `Stages.bind`. */
    public Bound bind(SparkSession session, byte[] fragment, String spec, List<SparkPlan> leaves) throws Exception {
        return stages.bind(session, fragment, spec, leaves);
    }

    /**
     * Begin to run partitions of a bound stage; returns at once. What becomes of each comes with `take`.
     *
     * <p>*spec* is JSON: {run, partitions: [..], nonces: [..]}, and what `OutputSpec` and, of streams, `StreamedTasks` take; *expression*
     * is the serialised bucket expression, or empty, or with *samples* the serialised order by which rows are sorted.
     */
    public void submit(Bound bound, String spec, byte[] expression) throws Exception {
        runs.submit(bound, spec, expression);
    }

    /** Stop partitions of a run; those not named go on. */
    public void cancel(String run, List<Integer> partitions) {
        runs.cancel(run, partitions);
    }

    /**
     * Wait up to *timeoutMs* for news, then return all there is (at most about 8 MiB): int32 length of a JSON list of events, the list,
     * and the inline results one after another. An event of partition -1 says that its run has ended.
     */
    public byte[] take(long timeoutMs) throws IOException, InterruptedException {
        return runs.take(timeoutMs);
    }

    /**
     * Run a whole query with plain Spark, on this thread and in its job group, and keep its result as one partition; what
     * goes wrong is raised as Spark raises it. *spec* is JSON: {nonce}, and what `OutputSpec` takes. The answer is one event as from `take`.
     */
    public byte[] runWhole(SparkSession session, QueryExecution query, String spec) throws Exception {
        return Whole.run(sc, store, outputs, session, query, spec);
    }

    /** The Arrow IPC schema message of a result with *plan*'s output under *names*. */
    public static byte[] arrowSchema(SparkSession session, SparkPlan plan, List<String> names) throws IOException {
        return WriteResult.arrowSchema(session, plan, names);
    }

    /** Describe an exception that reached Python, as JSON. */
    public static String describe(Throwable e) throws IOException {
        return Json.text(Failures.describe(e, false));
    }

    // ------------------------------------------------------------ job groups and jobs

    /** Let this thread's Spark jobs run in the job group *group* and in a scheduling pool of their own, until `leaveControl`. */
    public void enterControl(String group, String description) {
        groups.enterControl(group, description);
    }

    public void leaveControl(String group) {
        groups.leaveControl(group);
    }

    /** Stop the Spark jobs of *group*, let no more of them start, and interrupt its thread. */
    public void cancelControl(String group) {
        groups.cancelControl(group);
    }

    /** Stop whatever runs in a job group, or would begin later, such as the broadcasts of a stage that is being bound. */
    public void cancelGroup(String group) {
        Streams open = streams;
        if (open != null) {
            open.cancelGroup(group);
        }
        sc.cancelJobGroupAndFutureJobs(group);
        broadcasts.cancel(group);
    }

    /** Give back what was broadcast for a job. */
    public void closeJob(String job) {
        broadcasts.closeJob(job);
    }

    /** Remove a job's files from an exchange directory behind a URI, but for *keep*. */
    public void removeJob(String job, List<String> keep) throws IOException {
        store.removeAll(job, keep);
    }

    /** Return {broadcasts that are held, those ever begun, bytes of memory that Spark holds for them}. */
    public long[] broadcastUse() {
        return broadcasts.use();
    }

    /** Let stages of this executor broadcast at most *bytes* at a time, about. */
    public void limitBroadcasts(long bytes) {
        broadcasts.limit(bytes);
    }

    /** Return what processes of the cluster that run *tasks* tasks have against the exchange directory; nothing when all share it. */
    public List<String> whoDoesNotShare(int tasks) throws Exception {
        return Probe.ask(sc, store, tasks);
    }

    // ------------------------------------------------------------ streams

    /** Let tasks here stream, and others read that: *spec* is that of `Streams`. Return the address where they do. */
    public String openStreams(String spec) throws IOException {
        streams = new Streams(store, Json.tree(spec));
        return streams.address();
    }

    private Streams streams() {
        Streams open = streams;
        if (open == null) {
            throw new UncheckedIOException(new IOException("this executor takes no part in streams"));
        }
        return open;
    }

    /** Know of tasks that will stream once their stage is bound, which may take as long as what is broadcast in it. */
    public void expectStreams(String tasks) throws IOException {
        streams().expect(Json.read(tasks, StreamedTasks.class));
    }

    /** Those of them that have not begun will not. */
    public void giveUpStreams(String tasks, String why) throws IOException {
        streams().giveUp(Json.read(tasks, StreamedTasks.class), why);
    }

    /** Drop what a job has streamed, and take nothing more of it. */
    public void closeStreams(String job) {
        Streams open = streams;
        if (open != null) {
            open.closeJob(job);
        }
    }

    /** Stop to serve and to read streams. */
    public void stopStreams() {
        Streams open = streams;
        streams = null;
        if (open != null) {
            open.close();
        }
    }

    /** Return {bytes of streams in memory, bytes of them ever written to files, tasks that they are of, requests that wait}. */
    public long[] streamUse() {
        return streams().use();
    }
}
