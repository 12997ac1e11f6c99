package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;

/** What stands in a stage's plan for its inputs: its leaves, files of other stages' rows, and streams of them. */
final class StageInputs implements Binder.Leaves, HashJoins.Sizes {
    /** Stored bytes of a broadcast's input for each task that reads it. */
    private static final long BROADCAST_READ_BYTES = 4L << 20;
    /** An input of more files is not looked into before it is joined. */
    private static final int MOST_INDEXES = 64;

    private final Kernel kernel;
    private final JsonNode spec;
    private final List leaves;
    /** Inputs that are read while their producers run, as `RemoteInput`. */
    final List streamed = new ArrayList();

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
        ExchangeInput from = isStream(input) ? stream(index, input) : (ExchangeInput) files(input, broadcast);
        return new ExchangeScanExec(output, new ExchangeRDD(kernel.sc, from, output.size()), name(input));
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
            return held(remote.whole()); // Spark's job that builds something of it must not wait for rows in a slot that their producers may need
        }
        streamed.add(remote);
        return remote;
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
        int[] producers = new int[n];
        String[] nonces = new String[n];
        long[] rows = new long[n];
        for (int i = 0; i < n; i++) {
            producers[i] = Kernel.item(input, "producers", i).asInt();
            nonces[i] = Kernel.item(input, "nonces", i).asText();
            rows[i] = Kernel.item(input, "rows", i).asLong();
        }
        int partitions = input.get("partitions").asInt();
        int mode = RowFileInput.BUCKET;
        if (input.get("reads_all").asBoolean()) {
            mode = RowFileInput.SLICE;
            if (broadcast) {
                long pieces = 1 + input.get("bytes").asLong() / BROADCAST_READ_BYTES;
                partitions = (int) Math.max(1L, Math.min(pieces, (long) Math.min(n, kernel.slots)));
            }
        }
        return new RowFileInput(kernel.store, input.get("directory").asText(), input.get("stage").asInt(), producers, nonces, rows, partitions, mode);
    }
}
