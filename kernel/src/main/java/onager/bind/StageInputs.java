package onager.bind;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import onager.rows.ExchangeInput;
import onager.rows.ExchangeRDD;
import onager.rows.ExchangeScanExec;
import onager.rows.ExchangeSource;
import onager.rows.HeldInput;
import onager.rows.InputSpec;
import onager.rows.RowFileInput;
import onager.rows.RowFileInput.Mode;
import onager.rows.SortedInput;
import onager.sort.KeyOrder;
import onager.sort.RangeRDD;
import onager.spark43.Nodes;
import onager.store.Store;
import onager.stream.RemoteInput;
import onager.stream.RemoteSource;
import onager.stream.Streams;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import scala.collection.immutable.Seq;

/** Provides the inputs of a stage's plan: its own leaves, and the files and streams of other stages. */
final class StageInputs {
    /** The indexes of an input with more files are not read to decide how it is joined. */
    private static final int MAX_INDEXES = 64;
    /** The assumed ratio of uncompressed to stored size, if indexes are not read. */
    private static final long UNPACKED = 4;
    /** The overhead of a hash table per row, in bytes. */
    private static final long BYTES_OF_ENTRY = 64;

    /** The services of an executor for its stages; *streams* throws if the executor does not use streams. */
    record Means(SparkContext sc, Store store, int slots, Broadcasts broadcasts, Supplier<Streams> streams) {}

    private final Means means;
    private final StageSpec spec;
    private final List<SparkPlan> leaves;
    /** The inputs that are read as streams. */
    private final List<RemoteInput> streamed = new ArrayList<>();
    private final List<HeldInput> held = new ArrayList<>(); // streams that were read as a whole
    private final Map<Integer, Integer> readByEach = new HashMap<>(); // by index: partitions
    private final Map<Integer, Long> largeness = new HashMap<>(); // by index: bytes of a broadcast

    /** *leaves* has a plan for each input of the spec that is null. */
    StageInputs(Means means, StageSpec spec, List<SparkPlan> leaves) {
        this.means = means;
        this.spec = spec;
        this.leaves = leaves;
    }

    /** Return the leaf for input *index*; *broadcast*: it is directly below what accepts any number of partitions, as a broadcast does. */
    SparkPlan leaf(int index, RDDScanExec placeholder, boolean broadcast) {
        InputSpec input = spec.inputs().get(index);
        Seq<Attribute> output = placeholder.output();
        if (input == null) {
            return leaves.get(index);
        }
        if (input.ordering() != null) {
            return ranges(index, input, KeyOrder.decoded(input.ordering(), output), output, false);
        }
        Integer readers = readByEach.get(index);
        ExchangeInput from = readers != null ? files(input, Mode.ALL, readers) : input.isStream() ? stream(index, input) : files(input, broadcast);
        return new ExchangeScanExec(output, new ExchangeRDD(means.sc, from, output.size()), input.name());
    }

    /** Identifies a broadcast of files. It is dropped with the job, and other jobs may read the same files. */
    private record Key(String job, String directory, List<String> nonces, Object mode) {}

    /** Return the key of a broadcast of input *index*, or null if its size is unknown. */
    Object key(int index, BroadcastExchangeExec exchange) {
        InputSpec input = spec.inputs().get(index);
        return input == null || input.isStream()
                ? null
                : new Key(spec.job(), input.directory(), List.of(input.nonces()), exchange.mode().canonicalized());
    }

    /** Return the approximate size in memory of a broadcast of input *index*, in bytes. */
    long broadcastBytes(int index) {
        return largeness.computeIfAbsent(index, i -> {
            InputSpec input = spec.inputs().get(i);
            long plain = input.writers() > MAX_INDEXES ? UNPACKED * input.bytes() : files(input, Mode.ALL, 1).largestPartition();
            return plain + plain / 2 + BYTES_OF_ENTRY * LongStream.of(input.rows()).sum();
        });
    }

    /** Make each of *partitions* partitions read all of input *index*. */
    void readByEach(int index, int partitions) {
        readByEach.put(index, partitions);
    }

    /** Return the node that replaces *exchange*, a broadcast of input *index*, if it is shared; else null. */
    SparkPlan shared(int index, BroadcastExchangeExec exchange) {
        Object key = key(index, exchange);
        if (key == null) {
            return null;
        }
        var shared = means.broadcasts.get(spec.job(), key, spec.group(), broadcastBytes(index), () -> (BroadcastExchangeExec) exchange
                .withNewChildren(Seqs.seq(leaf(index, (RDDScanExec) exchange.child(), true))));
        return Nodes.reused(exchange.output(), shared.exchange);
    }

    /** Return the leaf for input *index* with its rows in *order*, or null if they cannot be read in that order. */
    SparkPlan sorted(int index, RDDScanExec placeholder, Seq<SortOrder> order) {
        InputSpec input = spec.inputs().get(index);
        if (input == null || input.ordering() == null || input.writers() > RangeRDD.MAX_MERGED) {
            return null;
        }
        KeyOrder runs = KeyOrder.decoded(input.ordering(), placeholder.output());
        return runs.satisfies(order) ? ranges(index, input, runs, placeholder.output(), true) : null;
    }

    /** Return the uncompressed size in bytes of the largest bucket of input *index*; -1 if unknown. */
    long largestBucket(int index) {
        InputSpec input = spec.inputs().get(index);
        boolean isKnown = input != null && !input.isStream() && input.ordering() == null && input.writers() <= MAX_INDEXES;
        if (isKnown && spec.isFused()) {
            return files(input, Mode.ALL, 1).largestPartition();
        }
        return isKnown && !input.readsAll() ? files(input, false).largestPartition() : -1L;
    }

    /** The leaf for ranges of sorted runs; reads the sampled keys of all runs now to compute the ranges. */
    private SparkPlan ranges(int index, InputSpec input, KeyOrder order, Seq<Attribute> output, boolean merges) {
        SortedInput from;
        ExchangeSource keys;
        if (input.isStream()) {
            RemoteInput remote = means.streams.get().input(index, input);
            keys = held(remote.samples()).open(0, null);
            streamed.add(remote);
            from = remote;
        } else {
            RowFileInput files = files(input, false);
            keys = files.samples();
            from = files;
        }
        return RangeRDD.scan(means.sc, from, keys, order, input.partitions(), output, merges, input.name());
    }

    private ExchangeInput stream(int index, InputSpec input) {
        RemoteInput remote = means.streams.get().input(index, input);
        if (input.readsAll()) {
            HeldInput all = held(remote.whole());
            held.add(all);
            return all; // a Spark job that builds a broadcast must not wait, in a slot, for producers that may need that slot
        }
        streamed.add(remote);
        return remote;
    }

    /** Tell the streamed inputs of the bound stage *rdd* which of their buckets have a single reader. */
    void decide(RDD<?> rdd) {
        var readers = new HashMap<Integer, int[]>();
        streamed.forEach(input -> readers.put(input.streamed(), new int[input.partitions()]));
        for (int p = 0; p < rdd.getNumPartitions() && !streamed.isEmpty(); p++) {
            try {
                Reads.of(rdd, p).forEach((input, buckets) -> buckets.forEach(bucket -> readers.get(input)[bucket]++));
            } catch (IllegalStateException e) {
                return; // the readers are unknown, so all frames are kept
            }
        }
        streamed.forEach(input -> input.decide(readers.get(input.streamed())));
    }

    /** Release what was read only for broadcasts and subqueries, which are built now. */
    void release() {
        held.forEach(HeldInput::release);
    }

    private HeldInput held(RemoteSource source) {
        try {
            return means.streams.get().hold(source, spec.group());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new TaskKilledException("interrupted");
        }
    }

    private RowFileInput files(InputSpec input, boolean broadcast) {
        if (input.byProducer()) {
            return files(input, Mode.PRODUCER, input.writers());
        }
        if (!input.readsAll()) {
            return spec.reads() == null ? files(input, Mode.BUCKET, input.partitions()) : RowFileInput.of(means.store, input, spec.reads());
        }
        long pieces = 1 + input.bytes() / RowFileInput.SMALL_BYTES;
        long partitions = Math.max(1L, Math.min(pieces, Math.min(input.writers(), means.slots)));
        return files(input, Mode.SLICE, broadcast ? (int) partitions : input.partitions());
    }

    private RowFileInput files(InputSpec input, Mode mode, int partitions) {
        return new RowFileInput(means.store, input, partitions, mode);
    }
}
