package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import scala.collection.immutable.Seq;

/** What stands in a stage's plan for its inputs: its leaves, files of other stages' rows, and streams of them. */
final class StageInputs implements Binder.Leaves, HashJoins.Sizes, BroadcastLimit.Inputs {
    /** Stored bytes of a broadcast's input for each task that reads it. */
    private static final long BROADCAST_READ_BYTES = 4L << 20;
    /** An input of more files is not looked into before it is joined. */
    private static final int MOST_INDEXES = 64;
    /** How much more rows take than what is stored of them, where that is not looked into. */
    private static final long UNPACKED = 4;
    /** What a hash table takes for a row, beside its bytes. */
    private static final long BYTES_OF_ENTRY = 64;

    private final Kernel kernel;
    private final JsonNode spec;
    private final List leaves;
    /** Inputs that are read while their producers run, as `RemoteInput`. */
    final List streamed = new ArrayList();
    private final List held = new ArrayList(); // what was read whole of streams, as `HeldInput`
    private final Map readByEach = new HashMap(); // index to Integer: its partitions
    private final Map largeness = new HashMap(); // index to Long: bytes of a broadcast

    /** *spec*, *leaves*: as for `Kernel.bind`. */
    StageInputs(Kernel kernel, JsonNode spec, List leaves) {
        this.kernel = kernel;
        this.spec = spec;
        this.leaves = leaves;
    }

    public SparkPlan leaf(int index, RDDScanExec placeholder, boolean broadcast) {
        JsonNode input = Kernel.item(spec, "inputs", index);
        Seq output = placeholder.output();
        if (input.isNull()) {
            return (SparkPlan) leaves.get(index);
        }
        if (input.has("ordering")) {
            return ranges(index, input, order(input, output), output, false);
        }
        Integer readers = (Integer) readByEach.get(Integer.valueOf(index));
        ExchangeInput from = readers != null ? (ExchangeInput) files(input, RowFileInput.ALL, readers.intValue())
                : isStream(input) ? stream(index, input) : (ExchangeInput) files(input, broadcast);
        return new ExchangeScanExec(output, new ExchangeRDD(kernel.sc, from, output.size()), name(input));
    }

    public Object key(int index, BroadcastExchangeExec exchange) {
        JsonNode input = Kernel.item(spec, "inputs", index);
        if (input.isNull() || isStream(input)) {
            return null;
        }
        return Arrays.asList(new Object[] {input.get("directory").asText(), input.get("nonces").toString(), exchange.mode().canonicalized()});
    }

    public long broadcastBytes(int index) {
        Long known = (Long) largeness.get(Integer.valueOf(index));
        if (known == null) {
            JsonNode input = Kernel.item(spec, "inputs", index);
            int n = input.get("producers").size();
            long rows = 0;
            for (int i = 0; i < n; i++) {
                rows += Kernel.item(input, "rows", i).asLong();
            }
            long plain = n > MOST_INDEXES ? UNPACKED * input.get("bytes").asLong() : files(input, RowFileInput.SLICE, 1).plainBytes();
            known = Long.valueOf(plain + plain / 2 + BYTES_OF_ENTRY * rows);
            largeness.put(Integer.valueOf(index), known);
        }
        return known.longValue();
    }

    public void readByEach(int index, int partitions) {
        readByEach.put(Integer.valueOf(index), Integer.valueOf(partitions));
    }

    public SparkPlan shared(final int index, final BroadcastExchangeExec exchange) {
        Object key = key(index, exchange);
        if (key == null) {
            return null;
        }
        Broadcasts.Shared shared = kernel.broadcasts.get(spec.get("job").asText(), key, spec.get("group").asText(), broadcastBytes(index),
                new Broadcasts.Maker() {
                    public BroadcastExchangeExec make() {
                        SparkPlan leaf = leaf(index, (RDDScanExec) exchange.child(), true);
                        return (BroadcastExchangeExec) exchange.withNewChildren(Kernel.seq(new Object[] {leaf}));
                    }
                });
        return new ReusedExchangeExec(exchange.output(), shared.exchange);
    }

    public SparkPlan sorted(int index, RDDScanExec placeholder, Seq order) {
        JsonNode input = Kernel.item(spec, "inputs", index);
        if (input.isNull() || !input.has("ordering") || input.get(isStream(input) ? "attempts" : "producers").size() > RangeRDD.MOST_MERGED) {
            return null;
        }
        KeyOrder runs = order(input, placeholder.output());
        return runs.satisfies(order) ? ranges(index, input, runs, placeholder.output(), true) : null;
    }

    public long largestBucket(int index) {
        JsonNode input = Kernel.item(spec, "inputs", index);
        if (input.isNull() || isStream(input) || input.has("ordering") || input.get("reads_all").asBoolean()
                || input.get("producers").size() > MOST_INDEXES) {
            return -1L;
        }
        return files(input, false).largestBucket();
    }

    /** The order of the sorted runs that *input*, a part of a JSON spec, describes. */
    static KeyOrder order(JsonNode input, Seq output) {
        try {
            return KeyOrder.decoded(input.get("ordering").binaryValue(), output);
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        } catch (ClassNotFoundException e) {
            throw new IllegalStateException(e);
        }
    }

    private static boolean isStream(JsonNode input) {
        return input.has("attempts");
    }

    private static String name(JsonNode input) {
        return "stage " + input.get("stage").asInt();
    }

    /** The leaf for ranges of sorted runs; the keys of all runs are read now, so that the ranges are known. */
    private SparkPlan ranges(int index, JsonNode input, KeyOrder order, Seq output, boolean merges) {
        SortedInput from;
        ExchangeSource keys;
        if (isStream(input)) {
            RemoteInput remote = kernel.streams().input(index, input);
            keys = held(remote.samples()).open(0, null);
            streamed.add(remote);
            from = remote;
        } else {
            RowFileInput files = files(input, false);
            keys = files.samples();
            from = files;
        }
        return RangeRDD.scan(kernel.sc, from, keys, order, input.get("partitions").asInt(), output, merges, name(input));
    }

    private ExchangeInput stream(int index, JsonNode input) {
        RemoteInput remote = kernel.streams().input(index, input);
        if (input.get("reads_all").asBoolean()) {
            HeldInput all = held(remote.whole());
            held.add(all);
            return all; // Spark's job that builds something of it must not wait for rows in a slot that their producers may need
        }
        streamed.add(remote);
        return remote;
    }

    /** Give back what was read for broadcasts and subqueries alone: they are made. */
    void release() {
        for (int i = 0; i < held.size(); i++) {
            ((HeldInput) held.get(i)).release();
        }
    }

    private HeldInput held(RemoteSource source) {
        try {
            return kernel.streams().hold(source, spec.get("group").asText());
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new TaskKilledException("interrupted");
        }
    }

    private RowFileInput files(JsonNode input, boolean broadcast) {
        int n = input.get("producers").size();
        if (!input.get("reads_all").asBoolean()) {
            return files(input, RowFileInput.BUCKET, input.get("partitions").asInt());
        }
        long pieces = 1 + input.get("bytes").asLong() / BROADCAST_READ_BYTES;
        long partitions = Math.max(1L, Math.min(pieces, (long) Math.min(n, kernel.slots)));
        return files(input, RowFileInput.SLICE, broadcast ? (int) partitions : input.get("partitions").asInt());
    }

    private RowFileInput files(JsonNode input, int mode, int partitions) {
        int n = input.get("producers").size();
        int[] producers = new int[n];
        String[] nonces = new String[n];
        long[] rows = new long[n];
        for (int i = 0; i < n; i++) {
            producers[i] = Kernel.item(input, "producers", i).asInt();
            nonces[i] = Kernel.item(input, "nonces", i).asText();
            rows[i] = Kernel.item(input, "rows", i).asLong();
        }
        return new RowFileInput(kernel.store, input.get("directory").asText(), input.get("stage").asInt(), producers, nonces, rows, partitions, mode);
    }
}
