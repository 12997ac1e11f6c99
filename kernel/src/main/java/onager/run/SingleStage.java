package onager.run;

import java.io.IOException;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import onager.bind.Bound;
import onager.bind.BoundPlan;
import onager.jobs.JobGroups;
import onager.spark43.Observed;
import onager.store.Store;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import scala.collection.immutable.Seq;
import scala.runtime.BoxedUnit;

/** A single-stage query, which plain Spark runs; the outcomes of all partitions are combined into one. */
public final class SingleStage {
    private static final int END_MARK = 8;
    private static final long MAX_HELD = 64L << 20;

    private final SparkContext sc;
    private final Store store;
    private final OutputSpec output;
    private final String nonce;
    private final Outcome[] outcomes;

    private SingleStage(SparkContext sc, Store store, OutputSpec output, String nonce, int partitions) {
        this.sc = sc;
        this.store = store;
        this.output = output;
        this.nonce = nonce;
        this.outcomes = new Outcome[partitions];
    }

    /** *metrics*: whether the operators, and what they measured, are reported; null: no. */
    private record Spec(String nonce, BoundPlan.Wanted metrics) {}

    /** See `Kernel.runSingleStage`. */
    public static byte[] run(SparkContext sc, Store store, Outputs outputs, JobGroups groups, SparkSession session, QueryExecution query,
            String spec) throws Exception {
        SparkPlan plan = query.executedPlan();
        Spec given = Json.read(spec, Spec.class);
        Outcome made = groups.progress().followed(exchanges(plan) + 1, () -> {
            long started = System.currentTimeMillis();
            OutputSpec output = Json.read(spec, OutputSpec.class);
            if (output.layout() == OutputSpec.Layout.RESULT && AtHand.has(plan)) {
                var bound = new Bound(session, plan, null, List.of(), null, 0L);
                var whole = new SingleStage(sc, store, output, given.nonce, 1);
                return whole.run(bound, task -> whole.outcomes[0] = AtHand.given(task, session, query), outputs, started);
            }
            RDD<InternalRow> rows = query.toRdd(); // an adaptive query runs all stages but the last
            if (output.layout() == OutputSpec.Layout.SINK && rows.getNumPartitions() == 0) {
                rows = sc.parallelize(Seqs.seq(), 1, Seqs.tag(InternalRow.class)); // as in Spark, a file tells the columns
            }
            var bound = new Bound(session, plan, rows, List.of(), null, 0L);
            var whole = new SingleStage(sc, store, output, given.nonce, bound.partitions());
            return whole.run(bound, task -> whole.runJob(bound, task), outputs, started);
        });
        var measured = given.metrics == null || given.metrics == BoundPlan.Wanted.OFF ? null : BoundPlan.measured(plan);
        if (measured != null) {
            made.fields().put("operators", measured.nodes());
            made.fields().put("op_metrics", measured.metrics());
        }
        byte[] observed = Observed.of(plan);
        if (observed.length > 0) {
            made.fields().put("observed", Base64.getEncoder().encodeToString(observed));
        }
        return Runs.pack(List.of(Runs.json("", made)), made.inline() == null ? new byte[0] : made.inline());
    }

    private static int exchanges(SparkPlan plan) {
        SparkPlan found = plan instanceof AdaptiveSparkPlanExec adaptive ? adaptive.initialPlan() : plan;
        int below = Seqs.list(found.children()).stream().mapToInt(SingleStage::exchanges).sum();
        return found instanceof Exchange ? below + 1 : below;
    }

    /** *work* gives the rows to the task that writes them, and notes the outcomes. */
    private Outcome run(Bound bound, Consumer<Task> work, Outputs outputs, long started) throws Exception {
        boolean isResult = output.layout() == OutputSpec.Layout.RESULT;
        var nonces = new HashMap<Integer, String>();
        for (int i = 0; i < outcomes.length; i++) {
            nonces.put(i, isResult ? nonce + "p" : nonce);
        }
        var common = new Task.Common("whole/" + nonce, nonces, bound.types(), null);
        Task task = outputs.task(bound, output, common, new byte[0], null).strict();
        byte[] empty = null;
        if (task instanceof WriteResult result) {
            empty = result.empty();
            result.writeParts(Math.max(empty.length + ResultFile.SMALLEST_END, inline()));
        }
        Outcome whole;
        try {
            work.accept(task);
            whole = isResult ? result(empty) : sink();
        } catch (Throwable e) {
            for (Outcome outcome : outcomes) {
                if (outcome != null) {
                    task.discard(outcome.partition(), outcome.text("nonce"));
                }
            }
            throw e;
        }
        whole.fields().put("started_ms", started);
        whole.fields().put("ended_ms", System.currentTimeMillis());
        return whole;
    }

    private void runJob(Bound bound, Task task) {
        Seq<Object> partitions = Seqs.seq(IntStream.range(0, outcomes.length).<Object>boxed().toList());
        sc.runJob(new LateRDD(bound.rdd()), task, partitions, (index, outcome) -> {
            outcomes[outcome.partition()] = outcome;
            return BoxedUnit.UNIT;
        }, Seqs.tag(Outcome.class));
    }

    /**
     * How many bytes of the result each task may return inline: all of them together only a part of what Spark accepts, and of what the
     * driver can hold. The rest is in files until all parts are combined.
     */
    private int inline() {
        long most = sc.getConf().getSizeAsBytes("spark.driver.maxResultSize", "1g");
        long all = most <= 0L ? MAX_HELD : Math.min(MAX_HELD, most / 4L);
        return (int) Math.min(WriteResult.INLINE, all / Math.max(1, outcomes.length));
    }

    private Map<String, Object> fields(Written written) {
        var fields = new LinkedHashMap<String, Object>();
        written.into(fields);
        for (String sum : List.of("rows", "bytes", "bytes_in", "fetch_ms", "spill_bytes")) {
            fields.put(sum, Stream.of(outcomes).mapToLong(outcome -> outcome.number(sum)).sum());
        }
        fields.put("peak_memory_bytes", Stream.of(outcomes).mapToLong(outcome -> outcome.number("peak_memory_bytes")).max().orElse(0L));
        return fields;
    }

    /** The staged files that have rows, or one without rows if none has. */
    private Outcome sink() {
        boolean hasRows = Stream.of(outcomes).anyMatch(outcome -> outcome.number("rows") > 0);
        var written = new Written();
        written.files = Stream.of(outcomes).filter(outcome -> !hasRows || outcome.number("rows") > 0)
                .flatMap(outcome -> Arrays.stream((String[]) outcome.fields().get("files"))).toArray(String[]::new);
        return new Outcome(0, fields(written), null);
    }

    /** One stream with the batches of all partitions, in order. *empty*: a stream without batches. */
    private Outcome result(byte[] empty) throws IOException {
        int head = empty.length - END_MARK;
        var done = new Written();
        var out = new ResultFile(store, WriteResult.name(output.directory(), 0, nonce), null, WriteResult.INLINE, false);
        try {
            out.write(empty, 0, head);
            out.endPiece();
            for (Outcome outcome : outcomes) {
                String checksum = outcome.text("checksum");
                if (outcome.inline() != null) {
                    out.append(new ResultFile.Held(outcome.inline()), checksum);
                } else {
                    String name = WriteResult.name(output.directory(), outcome.partition(), outcome.text("nonce"));
                    out.append(store.open(name), checksum);
                    store.delete(name);
                }
            }
            out.write(empty, head, END_MARK);
            out.endPiece();
            out.finish(done);
        } catch (Throwable e) {
            out.abort();
            throw e;
        }
        var fields = fields(done);
        fields.put("bytes", done.bytes);
        return new Outcome(0, fields, done.inline);
    }
}
