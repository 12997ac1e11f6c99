package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import scala.collection.immutable.Seq;

/** One task of a pipeline, from its encoded plan to its output, on a thread and in a session of its own. */
final class PipelineTask extends Thread {
    private final Pipeline pipeline;
    private final JsonNode spec;
    private final int stage;
    private final int partition;
    private final byte[] fragment;
    private final List leaves;
    private final byte[] expression;
    /** Held until the end: Spark removes the blocks of a broadcast once nobody holds the plan that made it. */
    private volatile Kernel.Bound bound = null;
    private IsolatedTask started = null;
    private boolean isUnwanted = false;
    private boolean isOver = false;

    PipelineTask(Pipeline pipeline, JsonNode spec, int partition, byte[] fragment, List leaves, byte[] expression) {
        super("onager-stream-" + pipeline.run + "-" + spec.get("stage").asInt() + "." + partition);
        setDaemon(true);
        this.pipeline = pipeline;
        this.spec = spec;
        this.stage = spec.get("stage").asInt();
        this.partition = partition;
        this.fragment = fragment;
        this.leaves = leaves;
        this.expression = expression;
    }

    public void run() {
        Outcome outcome = null;
        Throwable why = null;
        try {
            outcome = work();
        } catch (Throwable e) {
            why = e;
        }
        bound = null;
        synchronized (this) {
            isOver = true;
            started = null;
        }
        Thread.interrupted(); // heard; what follows must not trip over it
        pipeline.ended(stage, partition, outcome, why);
    }

    /** Ask the task to stop; it may be anywhere between not having begun and being over. */
    synchronized void kill() {
        if (isOver || isUnwanted || this == Thread.currentThread()) {
            return;
        }
        isUnwanted = true;
        if (started != null) {
            started.kill(false, "stopped");
        }
        interrupt();
    }

    private Outcome work() throws Exception {
        SparkSession session = pipeline.kernel.session(pipeline.base, spec.get("conf").toString());
        pipeline.kernel.enter(session, pipeline.run, pipeline.pool);
        SparkPlan plan = (SparkPlan) Kernel.decode(fragment);
        // Such a join reads its input in jobs of Spark's, and more than once: they must not hold slots while they wait for rows.
        boolean isHeld = PlanTools.hasJoinOverAllPartitions(plan);
        bound = Kernel.bind(session, plan, spec.get("partitions").asInt(), new Inputs(session, isHeld));
        RDD rows = bound.rdd;
        if (isHeld) {
            rows = HeldRows.of(pipeline.sc, bound, partition);
        } else {
            decide(Reads.of(bound.rdd, partition));
        }
        Map nonces = new HashMap();
        nonces.put(Integer.valueOf(partition), "r");
        Task body = spec.get("layout").asText().equals("result")
                ? pipeline.kernel.task(bound, spec, pipeline.run, nonces, expression)
                : Kernel.exchange(bound, new StreamOutput(pipeline.run, stage), spec, pipeline.run, nonces, expression);
        body.isStrict = true;
        IsolatedTask task = IsolatedTask.of(pipeline, rows, body, stage, partition);
        synchronized (this) {
            if (isUnwanted) {
                throw new InterruptedException("stopped before it began");
            }
            started = task;
        }
        Outcome outcome = task.run();
        if (outcome.inline != null) {
            String name = pipeline.directory + "/" + spec.get("directory").asText() + "/" + partition + "-r.arrow";
            Files.createDirectories(Paths.get(name, new String[0]).getParent(), new java.nio.file.attribute.FileAttribute[0]);
            Files.write(Paths.get(name, new String[0]), outcome.inline, new OpenOption[0]);
        }
        return outcome;
    }

    /** Let the exchange know what the task reads of the inputs that it has not read yet. */
    private void decide(Map reads) {
        JsonNode inputs = spec.get("inputs");
        for (int i = 0; i < inputs.size(); i++) {
            JsonNode input = (JsonNode) inputs.get(i);
            if (input.isNull() || input.get("reads_all").asBoolean()) {
                continue;
            }
            List wanted = (List) reads.get(Integer.valueOf(i));
            int[] buckets = new int[wanted == null ? 0 : wanted.size()];
            Iterator each = wanted == null ? null : wanted.iterator();
            for (int b = 0; b < buckets.length; b++) {
                buckets[b] = ((Integer) each.next()).intValue();
            }
            pipeline.exchange.decide(stage, partition, i, buckets);
        }
    }

    private final class Inputs implements Binder.Leaves {
        private final SparkSession session;
        private final boolean areHeld;

        /** *areHeld*: every input is read before the plan is executed. */
        Inputs(SparkSession session, boolean areHeld) {
            this.session = session;
            this.areHeld = areHeld;
        }

        public SparkPlan leaf(int index, RDDScanExec placeholder, boolean broadcast) {
            return pipeline.interposer().leaf(made(index, placeholder.output()), stage, partition);
        }

        public SparkPlan shared(int index, BroadcastExchangeExec exchange) {
            return null; // each task is on its own here
        }

        public SparkPlan sorted(int index, RDDScanExec placeholder, Seq order) {
            JsonNode input = (JsonNode) spec.get("inputs").get(index);
            if (input.isNull() || !input.has("ordering")) {
                return null;
            }
            KeyOrder runs = StageInputs.order(input, placeholder.output());
            if (!runs.satisfies(order)) {
                return null;
            }
            return pipeline.interposer().leaf(ranges(index, runs, placeholder.output(), true), stage, partition);
        }

        /** The leaf for ranges of sorted runs. The keys of all runs are read here, so that the ranges are known. */
        private SparkPlan ranges(int index, KeyOrder order, Seq output, boolean merges) {
            JsonNode input = (JsonNode) spec.get("inputs").get(index);
            int samples = Pipeline.samplesOf(index, spec);
            int partitions = input.get("partitions").asInt();
            SortedInput from = areHeld ? heldRuns(index) : new StreamInput(pipeline.run, stage, partition, index, partitions);
            pipeline.exchange.decide(stage, partition, samples, new int[] {SortedInput.SAMPLES});
            return RangeRDD.scan(pipeline.sc, from, pipeline.exchange.source(stage, partition, samples, SortedInput.SAMPLES), order,
                    partitions, output, merges, "stage " + input.get("stage").asInt());
        }

        private SparkPlan made(int index, Seq output) {
            JsonNode input = (JsonNode) spec.get("inputs").get(index);
            if (input.has("ordering")) {
                return ranges(index, StageInputs.order(input, output), output, false);
            }
            try {
                if (input.isNull()) {
                    return onager.kernel.Leaves.rebuild((byte[]) leaves.get(index), session);
                }
                ExchangeInput from;
                if (input.get("reads_all").asBoolean()) {
                    // Read here, whole: what Spark builds of it must not hold a slot of Spark's while it waits for rows.
                    from = held(index, 1);
                } else if (areHeld) {
                    from = held(index, input.get("partitions").asInt());
                } else {
                    from = new StreamInput(pipeline.run, stage, partition, index, input.get("partitions").asInt());
                }
                return new ExchangeScanExec(output, new ExchangeRDD(pipeline.sc, from, output.size()), "stage " + input.get("stage").asInt());
            } catch (RuntimeException e) {
                throw e;
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        /** Read an input to its end: as one partition, or as those that it has. */
        private ExchangeInput held(int index, int partitions) throws Exception {
            pipeline.exchange.decideAll(stage, partition, index);
            ExchangeSource[] sources = new ExchangeSource[partitions];
            for (int i = 0; i < partitions; i++) {
                sources[i] = pipeline.exchange.source(stage, partition, index, partitions == 1 ? -1 : i);
            }
            return HeldInput.drain(sources);
        }

        private SortedInput heldRuns(int index) {
            pipeline.exchange.decide(stage, partition, index, new int[] {SortedInput.ROWS});
            ExchangeSource[] runs = new ExchangeSource[pipeline.exchange.producers(stage, index)];
            for (int i = 0; i < runs.length; i++) {
                runs[i] = pipeline.exchange.source(stage, partition, index, SortedInput.ROWS, i);
            }
            try {
                return HeldInput.drain(runs);
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            } catch (InterruptedException e) {
                throw new org.apache.spark.TaskKilledException("interrupted");
            }
        }
    }
}
