package onager.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import onager.bind.Binder;
import onager.bind.Bound;
import onager.bind.Reads;
import onager.plan.Leaves;
import onager.plan.Outline;
import onager.rows.ExchangeInput;
import onager.rows.ExchangeRDD;
import onager.rows.ExchangeScanExec;
import onager.rows.ExchangeSource;
import onager.rows.HeldInput;
import onager.rows.InputSpec;
import onager.rows.SortedInput;
import onager.run.Outcome;
import onager.run.OutputSpec;
import onager.run.Outputs;
import onager.run.Task;
import onager.sort.KeyOrder;
import onager.sort.RangeRDD;
import onager.spark43.IsolatedTask;
import onager.values.Serialization;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction2;

/** One task of a pipeline, from its encoded plan to its output, on a thread and in a session of its own. */
final class PipelineTask extends Thread {
    private final Pipeline pipeline;
    private final Pipeline.Stage stage;
    private final OutputSpec output;
    private final int partition;
    private final byte[] fragment;
    private final List<byte[]> leaves;
    private final byte[] expression;
    /** Held until the end: Spark removes the blocks of a broadcast once nobody holds the plan that made it. */
    private volatile Bound bound = null;
    private IsolatedTask<Outcome> started = null;
    private boolean isUnwanted = false;
    private boolean isOver = false;

    PipelineTask(Pipeline pipeline, Pipeline.Stage stage, OutputSpec output, int partition, byte[] fragment, List<byte[]> leaves,
            byte[] expression) {
        super("onager-stream-" + pipeline.run + "-" + stage.stage() + "." + partition);
        setDaemon(true);
        this.pipeline = pipeline;
        this.stage = stage;
        this.output = output;
        this.partition = partition;
        this.fragment = fragment;
        this.leaves = leaves;
        this.expression = expression;
    }

    @Override
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
        pipeline.ended(stage.stage(), partition, outcome, why);
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
        SparkSession session = pipeline.groups.session(pipeline.base, stage.conf().toString());
        pipeline.groups.enter(session, pipeline.run, pipeline.pool);
        SparkPlan plan = Serialization.decode(fragment);
        // Such a join reads its input in jobs of Spark's, and more than once: they must not hold slots while they wait for rows.
        boolean isHeld = Outline.hasJoinOverAllPartitions(plan);
        bound = Binder.bind(session, plan, stage.partitions(), new Inputs(session, isHeld));
        RDD<InternalRow> rows = bound.rdd();
        if (isHeld) {
            rows = HeldRows.of(pipeline.sc, bound, partition);
        } else {
            decide(Reads.of(rows, partition));
        }
        var common = new Task.Common(pipeline.run, Map.of(partition, "r"), bound.types());
        Task body = output.layout() == OutputSpec.Layout.RESULT
                ? pipeline.outputs.task(bound, output, common, expression, null)
                : Outputs.exchange(bound, new StreamOutput(pipeline.run, stage.stage()), output, common, expression);
        var interposed = new Interposed(pipeline.run, stage.stage(), body.strict());
        var task = IsolatedTask.of(pipeline.sc, rows, interposed, stage.stage(), partition, pipeline.taskMemoryBytes);
        synchronized (this) {
            if (isUnwanted) {
                throw new InterruptedException("stopped before it began");
            }
            started = task;
        }
        Outcome outcome = task.run();
        if (outcome.inline() != null) {
            Path file = Path.of(pipeline.directory, output.directory(), partition + "-r.arrow");
            Files.createDirectories(file.getParent());
            Files.write(file, outcome.inline());
        }
        return outcome;
    }

    /** A task whose rows come by way of the pipeline's interposer. */
    @SuppressWarnings("serial")
    private static final class Interposed extends AbstractFunction2<TaskContext, Iterator<InternalRow>, Outcome> implements java.io.Serializable {
        private final String run;
        private final int stage;
        private final Task body;

        Interposed(String run, int stage, Task body) {
            this.run = run;
            this.stage = stage;
            this.body = body;
        }

        @Override
        public Outcome apply(TaskContext context, Iterator<InternalRow> rows) {
            return body.apply(context, Pipeline.interposed(run).rows(rows, stage, context.partitionId()));
        }
    }

    /** Let the exchange know what the task reads of the inputs that it has not read yet. */
    private void decide(Map<Integer, List<Integer>> reads) {
        for (int i = 0; i < stage.inputs().size(); i++) {
            InputSpec input = stage.inputs().get(i);
            if (input != null && !input.readsAll()) {
                int[] buckets = reads.getOrDefault(i, List.of()).stream().mapToInt(Integer::intValue).toArray();
                pipeline.exchange.decide(stage.stage(), partition, i, buckets);
            }
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

        @Override
        public SparkPlan leaf(int index, RDDScanExec placeholder, boolean broadcast) {
            return pipeline.interposer().leaf(made(index, placeholder.output()), stage.stage(), partition);
        }

        @Override
        public SparkPlan shared(int index, BroadcastExchangeExec exchange) {
            return null; // each task is on its own here
        }

        @Override
        public SparkPlan sorted(int index, RDDScanExec placeholder, Seq<SortOrder> order) {
            InputSpec input = stage.inputs().get(index);
            if (input == null || input.ordering() == null) {
                return null;
            }
            KeyOrder runs = KeyOrder.decoded(input.ordering(), placeholder.output());
            if (!runs.satisfies(order)) {
                return null;
            }
            return pipeline.interposer().leaf(ranges(index, runs, placeholder.output(), true), stage.stage(), partition);
        }

        /** The leaf for ranges of sorted runs. The keys of all runs are read here, so that the ranges are known. */
        private SparkPlan ranges(int index, KeyOrder order, Seq<Attribute> attributes, boolean merges) {
            InputSpec input = stage.inputs().get(index);
            int samples = stage.samplesOf(index);
            SortedInput from = areHeld ? heldRuns(index) : streamed(index, input);
            pipeline.exchange.decide(stage.stage(), partition, samples, new int[] {SortedInput.SAMPLES});
            return RangeRDD.scan(pipeline.sc, from, pipeline.exchange.source(stage.stage(), partition, samples, SortedInput.SAMPLES), order,
                    input.partitions(), attributes, merges, input.name());
        }

        private StreamInput streamed(int index, InputSpec input) {
            return new StreamInput(pipeline.run, stage.stage(), partition, index, input.partitions());
        }

        private SparkPlan made(int index, Seq<Attribute> attributes) {
            InputSpec input = stage.inputs().get(index);
            if (input == null) {
                try {
                    return Leaves.rebuild(leaves.get(index), session);
                } catch (IOException | ReflectiveOperationException e) {
                    throw new IllegalStateException(e);
                }
            }
            if (input.ordering() != null) {
                return ranges(index, KeyOrder.decoded(input.ordering(), attributes), attributes, false);
            }
            ExchangeInput from;
            if (input.readsAll()) {
                // Read here, whole: what Spark builds of it must not hold a slot of Spark's while it waits for rows.
                from = held(index, 1);
            } else {
                from = areHeld ? held(index, input.partitions()) : streamed(index, input);
            }
            return new ExchangeScanExec(attributes, new ExchangeRDD(pipeline.sc, from, attributes.size()), input.name());
        }

        /** Read an input to its end: as one partition, or as those that it has. */
        private ExchangeInput held(int index, int partitions) {
            pipeline.exchange.decideAll(stage.stage(), partition, index);
            var sources = new ExchangeSource[partitions];
            for (int i = 0; i < partitions; i++) {
                sources[i] = pipeline.exchange.source(stage.stage(), partition, index, partitions == 1 ? -1 : i);
            }
            return drain(sources);
        }

        private SortedInput heldRuns(int index) {
            pipeline.exchange.decide(stage.stage(), partition, index, new int[] {SortedInput.ROWS});
            var runs = new ExchangeSource[pipeline.exchange.producers(stage.stage(), index)];
            for (int i = 0; i < runs.length; i++) {
                runs[i] = pipeline.exchange.source(stage.stage(), partition, index, SortedInput.ROWS, i);
            }
            return drain(runs);
        }

        private static HeldInput drain(ExchangeSource[] sources) {
            try {
                return HeldInput.drain(sources);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            } catch (InterruptedException e) {
                throw new TaskKilledException("interrupted");
            }
        }
    }
}
