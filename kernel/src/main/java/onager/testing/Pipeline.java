package onager.testing;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import onager.failure.Failures;
import onager.jobs.JobGroups;
import onager.rows.ExchangeSink;
import onager.rows.InputSpec;
import onager.run.Outcome;
import onager.run.OutputSpec;
import onager.run.Outputs;
import onager.store.Store;
import onager.values.Json;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.Iterator;

/**
 * All tasks of all stages of one query, run at once in this process and wired by the streaming exchange. Each has a thread,
 * a session and a plan of its own; none waits for a slot of Spark's scheduler.
 */
public final class Pipeline {
    private static final Map<String, Pipeline> PIPELINES = new ConcurrentHashMap<>();

    /** Does nothing. */
    private static final class Nothing implements Interposer {
        @Override
        public ExchangeSink sink(ExchangeSink made, int stage, int partition) {
            return made;
        }

        @Override
        public Iterator<InternalRow> rows(Iterator<InternalRow> made, int stage, int partition) {
            return made;
        }

        @Override
        public SparkPlan leaf(SparkPlan made, int stage, int partition) {
            return made;
        }
    }

    /** A stage; an input is null where it is a leaf that the task describes. */
    record Stage(int stage, int partitions, List<InputSpec> inputs, JsonNode conf) {
        /** The number of the input by which the stage reads the keys that go along with the sorted runs of its input *i*. */
        int samplesOf(int i) {
            return inputs.size() + i;
        }
    }

    final SparkContext sc;
    final JobGroups groups;
    final Outputs outputs;
    final SparkSession base;
    final String run;
    final String pool;
    final String directory;
    final long taskMemoryBytes;
    final StreamExchange exchange;
    private Interposer interposer = new Nothing();
    private final Map<Integer, Stage> stages = new TreeMap<>();
    private final Map<Integer, OutputSpec> outputOf = new TreeMap<>();
    private final List<PipelineTask> tasks = new ArrayList<>();
    private final List<Map<String, Object>> outcomes = new ArrayList<>();
    private CountDownLatch running = null;
    private boolean isStopped = false;

    /**
     * *spec* is JSON: {run, directory, capacity_frames, capacity_bytes, frame_bytes, memory_bytes, task_memory_bytes}; results and what
     * memory has no place for go below *directory*, which is the caller's to remove.
     */
    public Pipeline(SparkContext sc, SparkSession base, String spec) throws IOException {
        JsonNode s = Json.tree(spec);
        this.sc = sc;
        this.base = base;
        this.run = s.get("run").asText();
        this.directory = s.get("directory").asText();
        this.taskMemoryBytes = s.get("task_memory_bytes").asLong();
        this.groups = new JobGroups(sc);
        this.pool = groups.takePool();
        var store = new Store(directory, new SerializableConfiguration(new Configuration(sc.hadoopConfiguration())));
        this.outputs = new Outputs(store, () -> {
            throw new IllegalStateException("there are no streams between executors here");
        });
        this.exchange = new StreamExchange(s.get("capacity_frames").asInt(), s.get("capacity_bytes").asLong(), s.get("frame_bytes").asInt(),
                s.get("memory_bytes").asLong(), directory);
        PIPELINES.put(run, this);
        StreamInput.EXCHANGES.put(run, exchange);
    }

    static Interposer interposed(String run) {
        return PIPELINES.get(run).interposer;
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
        Stage added = Json.read(spec, Stage.class);
        OutputSpec output = Json.read(spec, OutputSpec.class);
        boolean isResult = output.layout() == OutputSpec.Layout.RESULT;
        exchange.addStage(added.stage, added.partitions, isResult ? 0 : output.buckets());
        for (int i = 0; i < added.inputs.size(); i++) {
            InputSpec input = added.inputs.get(i);
            if (input != null) {
                exchange.addInput(added.stage, i, input.stage());
                if (input.ordering() != null) {
                    exchange.addInput(added.stage, added.samplesOf(i), input.stage());
                }
            }
        }
        stages.put(added.stage, added);
        outputOf.put(added.stage, output);
    }

    /** Add a task: its plan, the descriptions of its leaves (null where its stage's inputs are not), its bucket expression or nothing. */
    public void addTask(int stage, int partition, byte[] fragment, List<byte[]> leaves, byte[] expression) {
        tasks.add(new PipelineTask(this, stages.get(stage), outputOf.get(stage), partition, fragment, leaves, expression));
    }

    /** Let every task begin. */
    public void start() {
        running = new CountDownLatch(tasks.size());
        tasks.forEach(Thread::start);
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
            var fields = new LinkedHashMap<>(outcome.fields());
            fields.put("stage", stage);
            fields.put("partition", partition);
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
        tasks.forEach(PipelineTask::kill);
        sc.cancelJobGroup(run);
    }

    /** Stop all tasks, unless something stopped them before. */
    public void cancel(String why) {
        exchange.cancel(why);
        stop();
    }

    /** Return, as JSON, what every task that succeeded came to, the first failure, and what the exchange had to do. */
    public String report() throws IOException {
        var report = new LinkedHashMap<String, Object>();
        synchronized (outcomes) {
            report.put("tasks", new ArrayList<>(outcomes));
        }
        Throwable failure = exchange.failure();
        if (failure != null) {
            var described = Failures.describe(failure, false);
            int[] failed = exchange.failed();
            if (failed != null) {
                described.put("stage", failed[0]);
                described.put("partition", failed[1]);
            }
            report.put("failure", described);
        }
        report.put("grants", exchange.grants());
        report.put("spilled_bytes", exchange.spilledBytes());
        return Json.text(report);
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
        String left = ended ? "" : tasks.stream().filter(Thread::isAlive).map(task -> task.getName() + "\n").collect(Collectors.joining());
        if (ended) {
            tasks.clear(); // and with them their plans, which whoever still has this object would hold
        }
        exchange.close();
        StreamInput.EXCHANGES.remove(run);
        PIPELINES.remove(run);
        groups.close();
        return left;
    }
}
