package onager;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryUsage;
import java.util.List;
import java.util.Map;
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
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;

/**
 * The interface of an executor's kernel for Python. Methods have few, plain parameters and results, because a call costs 0.1 ms or more:
 * structures travel as JSON, and results of many tasks in one answer.
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

    /** *writer*: the id of this executor's incarnation. */
    public Kernel(SparkContext sc, String exchangeDir, int slots, String writer) {
        this.sc = sc;
        this.store = new Store(exchangeDir, writer);
        this.groups = new JobGroups(sc);
        this.broadcasts = new Broadcasts(sc);
        this.stages = new Stages(sc, store, slots, broadcasts, groups, this::streams);
        this.outputs = new Outputs(store, this::streams);
        this.runs = new Runs(sc, outputs, broadcasts, groups);
    }

    /** Throw if this Spark lacks something that is looked up by name; *classes*: operators and partitionings that the planner knows. */
    public static void check(SparkSession session, List<String> classes) {
        Lookups.check(session, classes);
    }

    /**
     * Wait for this kernel's tasks, which must have been cancelled, to end; release everything, and restore the context. Return how many
     * tasks still run after *waitMs*.
     */
    public int close(long waitMs) throws InterruptedException, TimeoutException {
        runs.close();
        stopStreams();
        return groups.close(waitMs);
    }

    // ------------------------------------------------------------ stages and their tasks

    /** See `JobGroups.session`. */
    public SparkSession session(SparkSession base, String conf) throws IOException, IllegalAccessException {
        return groups.session(base, conf);
    }

    /** See `Stages.bind`. */
    public Bound bind(SparkSession session, byte[] fragment, String spec, List<SparkPlan> leaves, List<byte[]> fused) throws Exception {
        return stages.bind(session, fragment, spec, leaves, fused);
    }

    /** Return the operators of a bound stage as JSON, see `BoundPlan.nodes`; empty if its tasks report no metrics. */
    public static String operators(Bound bound) throws IOException {
        return bound.operators() == null ? "" : Json.text(bound.operators().nodes());
    }

    /**
     * Start partitions of a bound stage, and return at once; `take` returns their outcomes.
     *
     * <p>*spec* is JSON: {run, partitions: [..], nonces: [..], attempts: "..." (see `Attempt`)} and the fields of `OutputSpec` and, for streams, of `StreamedTasks`;
     * *expression* is the serialised bucket expression, with *samples* the serialised ordering of the rows, or empty.
     */
    public void submit(Bound bound, String spec, byte[] expression) throws Exception {
        runs.submit(bound, spec, expression);
    }

    /**
     * Stop *partitions* of a run; the others continue. Once no task of such a partition goes on, `take` returns an event {stopped: true}
     * of it, whatever became of the task.
     */
    public void cancel(String run, List<Integer> partitions) {
        runs.cancel(run, partitions);
    }

    /**
     * Wait up to *timeoutMs* for events, and return all of them (up to about 8 MiB): the int32 length of a JSON list of events, the list,
     * and the inline results one after another. Partition -1 in an event means that its run has ended.
     */
    public byte[] take(long timeoutMs) throws IOException, InterruptedException {
        return runs.take(timeoutMs);
    }

    /**
     * Run a single-stage query with plain Spark, on this thread and in its job group, and write its result as one partition. Spark's
     * exceptions are thrown unchanged. *spec* is JSON: {nonce} and the fields of `OutputSpec`. Returns one event in the format of `take`.
     */
    public byte[] runWhole(SparkSession session, QueryExecution query, String spec) throws Exception {
        return Whole.run(sc, store, outputs, groups, session, query, spec);
    }

    /** Return the Arrow IPC schema message of a result with *plan*'s output columns, named *names*, a JSON list. */
    public static byte[] arrowSchema(SparkSession session, SparkPlan plan, String names) throws IOException {
        return WriteResult.arrowSchema(session, plan, List.of(Json.read(names, String[].class)));
    }

    /** Describe an exception, which Python caught, as JSON. */
    public static String describe(Throwable e) throws IOException {
        return Json.text(Failures.describe(e, false));
    }

    /** See `Runs.readings`; JSON, of *most* tasks at most. */
    public String readings(int most) throws IOException {
        return Json.text(runs.readings(most));
    }

    /** Return how many milliseconds Spark generated and compiled code while a stage was bound, other stages' at the same time included. */
    public static long codegenMs(Bound bound) {
        return bound.codegenMs();
    }

    /** Return what this JVM uses, as JSON: {heap_used_bytes, heap_max_bytes, gc_ms}. */
    public static String jvmUse() throws IOException {
        MemoryUsage heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
        long gc = ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(each -> Math.max(0L, each.getCollectionTime())).sum();
        return Json.text(Map.of("heap_used_bytes", heap.getUsed(), "heap_max_bytes", Math.max(0L, heap.getMax()), "gc_ms", gc));
    }

    // ------------------------------------------------------------ job groups and jobs

    /** Run this thread's Spark jobs in the job group *group* and in their own scheduler pool until `leaveControl`; all log as *attempt*. */
    public void enterControl(String group, String description, String attempt) {
        groups.enterControl(group, description, attempt);
    }

    /** Wait until no Spark task of *group* goes on, after its work was cancelled or has failed. */
    public void awaitControl(String group, boolean wasCancelled) {
        groups.awaitControl(group, wasCancelled);
    }

    public void leaveControl(String group) {
        groups.leaveControl(group);
    }

    /** Cancel the running and future Spark jobs of *group*, and interrupt its thread. */
    public void cancelControl(String group) {
        groups.cancelControl(group);
    }

    /** Cancel the running and future Spark jobs of a job group, such as the broadcasts of a stage that is being bound. */
    public void cancelGroup(String group) {
        Streams open = streams;
        if (open != null) {
            open.cancelGroup(group);
        }
        sc.cancelJobGroupAndFutureJobs(group);
        broadcasts.cancel(group);
    }

    /** Release the broadcasts of a job. */
    public void closeJob(String job) {
        broadcasts.closeJob(job);
    }

    /** Return {broadcasts held, broadcasts ever started, bytes of memory that Spark holds for them}. */
    public long[] broadcastUse() {
        return broadcasts.use();
    }

    /** Limit the broadcasts that stages hold at once to about *bytes*. */
    public void limitBroadcasts(long bytes) {
        broadcasts.limit(bytes);
    }

    /** Return why processes of the cluster do not share the exchange directory; empty if all do. Probes with *tasks* tasks. */
    public List<String> whoDoesNotShare(int tasks) throws Exception {
        return Probe.ask(sc, store, tasks);
    }

    // ------------------------------------------------------------ streams

    /** Open the stream server with *spec* (see `Streams`), and return the address where others read streams. */
    public String openStreams(String spec) throws IOException {
        streams = new Streams(store, Json.tree(spec));
        return streams.address();
    }

    private Streams streams() {
        Streams open = streams;
        if (open == null) {
            throw new UncheckedIOException(new IOException("this executor does not use streams"));
        }
        return open;
    }

    /** Announce tasks that will stream once their stage is bound, which may take as long as its broadcasts. */
    public void expectStreams(String tasks) throws IOException {
        streams().expect(Json.read(tasks, StreamedTasks.class));
    }

    /** Tell the readers of announced tasks that have not started that they will not start. */
    public void giveUpStreams(String tasks, String why) throws IOException {
        streams().giveUp(Json.read(tasks, StreamedTasks.class), why);
    }

    /** Drop a job's streams, and accept no more of them. */
    public void closeStreams(String job) {
        Streams open = streams;
        if (open != null) {
            open.closeJob(job);
        }
    }

    /** Stop serving and reading streams. */
    public void stopStreams() {
        Streams open = streams;
        streams = null;
        if (open != null) {
            open.close();
        }
    }

    /** Return {bytes of streams in memory, bytes ever written to files, tasks that stream, requests that wait}. */
    public long[] streamUse() {
        return streams().use();
    }
}
