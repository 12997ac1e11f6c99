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
import onager.run.SingleStage;
import onager.run.WriteResult;
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

    /**
     * Wait for this kernel's tasks, which must have been cancelled, to end; release everything, and restore the context. Return how many
     * tasks still run after *waitMs*.
     */
    public int close(long waitMs) throws InterruptedException, TimeoutException {
        runs.close();
        stopStreams();
        return groups.close(waitMs);
    }

    // ------------------------------------------------------------ its parts, which Python calls itself

    public JobGroups groups() {
        return groups;
    }

    public Broadcasts broadcasts() {
        return broadcasts;
    }

    public Stages stages() {
        return stages;
    }

    public Runs runs() {
        return runs;
    }

    public Store store() {
        return store;
    }

    // ------------------------------------------------------------ stages and their tasks

    /** Return the operators of a bound stage as JSON, see `BoundPlan.nodes`; empty if its tasks report no metrics. */
    public static String operators(Bound bound) throws IOException {
        return bound.operators() == null ? "" : Json.text(bound.operators().nodes());
    }

    /**
     * Run a single-stage query with plain Spark, on this thread and in its job group, and write its result as one partition. Spark's
     * exceptions are thrown unchanged. *spec* is JSON: {nonce} and the fields of `OutputSpec`. Returns one event in the format of `take`.
     */
    public byte[] runSingleStage(SparkSession session, QueryExecution query, String spec) throws Exception {
        return SingleStage.run(sc, store, outputs, groups, session, query, spec);
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

    /** Return what this JVM uses, as JSON: {heap_used_bytes, heap_max_bytes, gc_ms}. */
    public static String jvmUse() throws IOException {
        MemoryUsage heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
        long gc = ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(each -> Math.max(0L, each.getCollectionTime())).sum();
        return Json.text(Map.of("heap_used_bytes", heap.getUsed(), "heap_max_bytes", Math.max(0L, heap.getMax()), "gc_ms", gc));
    }

    // ------------------------------------------------------------ job groups and jobs

    /** Cancel the running and future Spark jobs of a job group, such as the broadcasts of a stage that is being bound. */
    public void cancelGroup(String group) {
        Streams open = streams;
        if (open != null) {
            open.cancelGroup(group);
        }
        sc.cancelJobGroupAndFutureJobs(group);
        broadcasts.cancel(group);
    }

    /** Return why processes of the cluster do not share the exchange directory; empty if all do. Probes with *tasks* tasks. */
    public List<String> exchangeProblems(int tasks) throws Exception {
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
