package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;

/**
 * All tasks of all stages of one query, run at once in this process and wired by the streaming exchange. Each has a thread,
 * a session and a plan of its own; none waits for a slot of Spark's scheduler.
 */
public final class Pipeline {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map PIPELINES = new ConcurrentHashMap();

    /** Does nothing. */
    private static final class Nothing implements Interposer {
        public ExchangeSink sink(ExchangeSink made, int stage, int partition) {
            return made;
        }

        public scala.collection.Iterator rows(scala.collection.Iterator made, int stage, int partition) {
            return made;
        }

        public SparkPlan leaf(SparkPlan made, int stage, int partition) {
            return made;
        }
    }

    final SparkContext sc;
    final Kernel kernel;
    final SparkSession base;
    final String run;
    final String pool;
    final String directory;
    final long taskMemoryBytes;
    final StreamExchange exchange;
    private Interposer interposer = new Nothing();
    private final Map stages = new TreeMap();
    private final List tasks = new ArrayList();
    private final List outcomes = new ArrayList();
    private CountDownLatch running = null;
    private boolean isStopped = false;

    /**
     * *spec* is JSON: {run, directory, capacity_frames, capacity_bytes, frame_bytes, memory_bytes, task_memory_bytes}; results and what
     * memory has no place for go below *directory*, which is the caller's to remove.
     */
    public Pipeline(SparkContext sc, SparkSession base, String spec) throws IOException {
        JsonNode s = JSON.readTree(spec);
        this.sc = sc;
        this.base = base;
        this.run = s.get("run").asText();
        this.directory = s.get("directory").asText();
        this.taskMemoryBytes = s.get("task_memory_bytes").asLong();
        this.kernel = new Kernel(sc, directory, 1, "");
        this.pool = kernel.pools.take();
        this.exchange = new StreamExchange(s.get("capacity_frames").asInt(), s.get("capacity_bytes").asLong(), s.get("frame_bytes").asInt(),
                s.get("memory_bytes").asLong(), directory);
        PIPELINES.put(run, this);
        StreamInput.EXCHANGES.put(run, exchange);
    }

    static Interposer interposed(String run) {
        return ((Pipeline) PIPELINES.get(run)).interposer;
    }

    /** Put *chosen* between tasks and what they read and write. */
    public void interpose(Interposer chosen) {
        interposer = chosen;
    }

    Interposer interposer() {
        return interposer;
    }

    /**
     * Add a stage, after those that it reads. *spec* is JSON: {stage, partitions, layout: exchange | result, buckets, names, conf: {..},
     * inputs: [null | {stage, reads_all, partitions, ordering}]}, null standing for a leaf that the task describes; *ordering* and
     * *samples* as for `Kernel`.
     */
    public void addStage(String spec) throws IOException {
        JsonNode s = JSON.readTree(spec);
        int stage = s.get("stage").asInt();
        boolean isResult = s.get("layout").asText().equals("result");
        exchange.addStage(stage, s.get("partitions").asInt(), isResult ? 0 : s.get("buckets").asInt());
        JsonNode inputs = s.get("inputs");
        for (int i = 0; i < inputs.size(); i++) {
            JsonNode input = (JsonNode) inputs.get(i);
            if (!input.isNull()) {
                exchange.addInput(stage, i, input.get("stage").asInt());
                if (input.has("ordering")) {
                    exchange.addInput(stage, samplesOf(i, s), input.get("stage").asInt());
                }
            }
        }
        stages.put(Integer.valueOf(stage), s);
    }

    /** The number of the input by which the stage *spec* reads the keys that go along with the sorted runs of its input *i*. */
    static int samplesOf(int i, JsonNode spec) {
        return spec.get("inputs").size() + i;
    }

    /** Add a task: its plan, the descriptions of its leaves (null where its stage's inputs are not), its bucket expression or nothing. */
    public void addTask(int stage, int partition, byte[] fragment, List leaves, byte[] expression) {
        tasks.add(new PipelineTask(this, (JsonNode) stages.get(Integer.valueOf(stage)), partition, fragment, leaves, expression));
    }

    /** Let every task begin. */
    public void start() {
        running = new CountDownLatch(tasks.size());
        for (int i = 0; i < tasks.size(); i++) {
            ((Thread) tasks.get(i)).start();
        }
    }

    /** Wait up to *ms* for the end of all tasks; return whether it came. */
    public boolean await(long ms) throws InterruptedException {
        return running.await(ms, TimeUnit.MILLISECONDS);
    }

    void ended(int stage, int partition, Outcome outcome, Throwable why) {
        exchange.end(stage, partition, why);
        if (exchange.failure() != null) {
            stop();
        }
        if (outcome != null) {
            Map fields = new LinkedHashMap(outcome.fields);
            fields.put("stage", Integer.valueOf(stage));
            fields.put("partition", Integer.valueOf(partition));
            synchronized (outcomes) {
                outcomes.add(fields);
            }
        }
        running.countDown();
    }

    private void stop() {
        synchronized (this) {
            if (isStopped) {
                return;
            }
            isStopped = true;
        }
        for (int i = 0; i < tasks.size(); i++) {
            ((PipelineTask) tasks.get(i)).kill();
        }
        sc.cancelJobGroup(run);
    }

    /** Stop all tasks, unless something stopped them before. */
    public void cancel(String why) {
        exchange.cancel(why);
        stop();
    }

    /** Return, as JSON, what every task that succeeded came to, the first failure, and what the exchange had to do. */
    public String report() throws IOException {
        Map report = new LinkedHashMap();
        synchronized (outcomes) {
            report.put("tasks", new ArrayList(outcomes));
        }
        Throwable failure = exchange.failure();
        if (failure != null) {
            Map described = Failures.describe(failure, false);
            int[] failed = exchange.failed();
            if (failed != null) {
                described.put("stage", Integer.valueOf(failed[0]));
                described.put("partition", Integer.valueOf(failed[1]));
            }
            report.put("failure", described);
        }
        report.put("grants", Long.valueOf(exchange.grants()));
        report.put("spilled_bytes", Long.valueOf(exchange.spilledBytes()));
        return JSON.writeValueAsString(report);
    }

    /** Return who waits for what, a line each. */
    public String waits() {
        return exchange.waits();
    }

    /** Bytes of frames that wait in memory. */
    public long heldBytes() {
        return exchange.heldBytes();
    }

    /** Stop what still runs, wait up to *ms* for it, and let go of everything. Return the names of threads that did not end. */
    public String close(long ms) throws InterruptedException {
        if (running != null && running.getCount() > 0L) {
            cancel("the run is closed");
        }
        boolean ended = running == null || running.await(ms, TimeUnit.MILLISECONDS);
        StringBuilder left = new StringBuilder();
        for (int i = 0; !ended && i < tasks.size(); i++) {
            Thread t = (Thread) tasks.get(i);
            if (t.isAlive()) {
                left.append(t.getName()).append('\n');
            }
        }
        if (ended) {
            tasks.clear(); // and with them their plans, which whoever still has this object would hold
        }
        exchange.close();
        StreamInput.EXCHANGES.remove(run);
        PIPELINES.remove(run);
        kernel.close();
        return left.toString();
    }
}
