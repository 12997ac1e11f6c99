package onager.run;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import onager.bind.Bound;
import onager.bind.Broadcasts;
import onager.bind.Meters;
import onager.failure.Failures;
import onager.jobs.JobGroups;
import onager.jobs.Readings;
import onager.jobs.UnwantedTasks;
import onager.stream.StreamedTasks;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.runtime.BoxedUnit;

/** Runs task sets, each as a Spark job, and collects the outcomes of their partitions. */
public final class Runs {
    private static final int MAX_TAKEN = 8 << 20;
    private static final long CATCH_UP_MS = 10_000L;

    private final SparkContext sc;
    private final Outputs outputs;
    private final Broadcasts broadcasts;
    private final JobGroups groups;
    private final Map<String, Run> runs = new ConcurrentHashMap<>();
    private final LinkedBlockingQueue<Event> events = new LinkedBlockingQueue<>();

    /** An event of *run*; partition -1: the run has ended. */
    private record Event(String run, Outcome outcome) {}

    /** *run*: the run's name; *nonces* are in the order of *partitions*; *attempts*: how they log, null: under no name. */
    private record Spec(String run, List<Integer> partitions, List<String> nonces, String attempts) {}

    public Runs(SparkContext sc, Outputs outputs, Broadcasts broadcasts, JobGroups groups) {
        this.sc = sc;
        this.outputs = outputs;
        this.broadcasts = broadcasts;
        this.groups = groups;
        groups.tracker().whenEnded((name, partition) -> {
            Run run = runs.get(name);
            if (run != null) {
                run.taskEnded(partition);
            }
        });
    }

    /**
     * Start partitions of a bound stage, and return at once; `take` returns their outcomes.
     *
     * <p>*spec* is JSON: {run, partitions: [..], nonces: [..], attempts: "..." (see `Attempt`)} and the fields of `OutputSpec` and, for streams, of `StreamedTasks`;
     * *expression* is the serialised bucket expression, with *samples* the serialised ordering of the rows, or empty.
     */
    public void submit(Bound bound, String spec, byte[] expression) throws Exception {
        var set = Json.read(spec, Spec.class);
        var nonces = new HashMap<Integer, String>();
        for (int i = 0; i < set.partitions.size(); i++) {
            nonces.put(set.partitions.get(i), set.nonces.get(i));
        }
        var output = Json.read(spec, OutputSpec.class);
        var streamed = output.layout() == OutputSpec.Layout.STREAM ? Json.read(spec, StreamedTasks.class) : null;
        Meters meters = bound.operators() == null ? null : bound.operators().meters();
        Task task = outputs.task(bound, output, new Task.Common(set.run, nonces, bound.types(), meters), expression, streamed);
        var run = new Run(set, bound, task);
        runs.put(set.run, run);
        broadcasts.run(bound.broadcasts(), 1);
        run.start();
    }

    /**
     * Stop *partitions* of a run; the others continue. Once no task of such a partition goes on, `take` returns an event {stopped: true}
     * of it, whatever became of the task.
     */
    public void cancel(String name, List<Integer> partitions) {
        Run run = runs.get(name);
        if (run != null) {
            run.cancel(partitions);
        } else {
            partitions.forEach(partition -> events.add(stopped(name, partition)));
        }
    }

    private static Event stopped(String run, int partition) {
        return new Event(run, new Outcome(partition, Map.of("stopped", true), null));
    }

    /** One running task set: a thread that waits for its Spark job, and queues each partition's outcome as it arrives. */
    private final class Run extends Thread {
        private final String name;
        private final Bound bound;
        private final List<Integer> partitions;
        private final String attempts;
        private final Task task;
        private final Set<Integer> cancelled = new HashSet<>();
        private final Set<Integer> stopping = new HashSet<>(); // those of them of which a task may go on
        private boolean hasEnded = false;

        Run(Spec set, Bound bound, Task task) {
            super("onager-" + set.run);
            setDaemon(true);
            this.name = set.run;
            this.bound = bound;
            this.partitions = set.partitions;
            this.attempts = set.attempts;
            this.task = task;
        }

        @Override
        public void run() {
            var fields = new LinkedHashMap<String, Object>();
            try {
                groups.within(bound.session(), name, attempts, () -> {
                    sc.runJob(new LateRDD(bound.rdd()), task, Seqs.<Object>seq(partitions), (index, outcome) -> {
                        events.add(new Event(name, outcome));
                        return BoxedUnit.UNIT;
                    }, Seqs.tag(Outcome.class));
                    return null;
                });
            } catch (Throwable e) {
                fields.put("failure", Failures.describe(e, false));
            } finally {
                end();
                broadcasts.run(bound.broadcasts(), -1);
                events.add(new Event(name, new Outcome(-1, fields, null)));
                settle();
            }
        }

        /** Tell which cancelled tasks have ended; of one that goes on, `taskEnded` tells. */
        private void settle() {
            if (isStopping()) {
                try {
                    groups.tracker().catchUp(CATCH_UP_MS); // by then all tasks that have begun are known
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            synchronized (this) {
                for (int partition : List.copyOf(stopping)) {
                    taskEnded(partition);
                }
                forgetIfOver();
            }
        }

        private synchronized boolean isStopping() {
            return !stopping.isEmpty();
        }

        /** Tell that a cancelled task has ended, unless another one of the partition goes on. */
        synchronized void taskEnded(int partition) {
            if (stopping.contains(partition) && !groups.tracker().runs(name, partition)) {
                stopping.remove(partition);
                events.add(stopped(name, partition));
                forgetIfOver();
            }
        }

        private void forgetIfOver() {
            if (hasEnded && stopping.isEmpty()) {
                runs.remove(name);
            }
        }

        long expected(int partition) {
            Partition[] all = bound.rdd().partitions();
            return partition < all.length && all[partition] instanceof FilePartition files
                    ? Stream.of(files.files()).mapToLong(PartitionedFile::length).sum() : 0L;
        }

        private synchronized void end() {
            hasEnded = true;
            partitions.forEach(partition -> UnwantedTasks.remove(name, partition));
        }

        synchronized void cancel(List<Integer> unwanted) {
            stopping.addAll(unwanted);
            if (hasEnded) {
                unwanted.forEach(this::taskEnded); // nothing would remove an entry among the unwanted again
                return;
            }
            unwanted.forEach(partition -> UnwantedTasks.add(name, partition));
            cancelled.addAll(unwanted);
            if (cancelled.size() >= partitions.size()) {
                sc.cancelJobGroup(name);
            } else {
                unwanted.forEach(partition -> groups.tracker().kill(name, partition));
            }
        }
    }

    /**
     * Return what running tasks have read, and how far queries are that run whole, {run, partition, rows, bytes, expected} and {run,
     * partition: -1, rows, bytes, permille}. *expected*: the bytes of the files that the task reads, of which it may need a part only; 0:
     * not known.
     */
    public List<Map<String, Object>> readings(int most) {
        var found = new ArrayList<Map<String, Object>>();
        groups.progress().now().forEach((group, progress) -> found.add(Map.of("run", group, "partition", -1, "rows", progress.rows(),
                "bytes", progress.bytes(), "permille", progress.permille())));
        for (var reading : Readings.now(most)) {
            Run run = runs.get(reading.run());
            if (run != null) {
                found.add(Map.of("run", reading.run(), "partition", reading.partition(), "rows", reading.rows(), "bytes", reading.bytes(),
                        "expected", run.expected(reading.partition())));
            }
        }
        return found;
    }

    /** Let who waits in `take` go. */
    public void close() {
        events.add(new Event("", new Outcome(-1, Map.of(), null)));
    }

    /**
     * Wait up to *timeoutMs* for events, and return all of them (up to about 8 MiB): the int32 length of a JSON list of events, the list,
     * and the inline results one after another. Partition -1 in an event means that its run has ended.
     */
    public byte[] take(long timeoutMs) throws IOException, InterruptedException {
        var taken = new ArrayList<Map<String, Object>>();
        var blobs = new ByteArrayOutputStream();
        Event event = events.poll(timeoutMs, TimeUnit.MILLISECONDS);
        while (event != null) {
            taken.add(json(event.run, event.outcome));
            if (event.outcome.inline() != null) {
                blobs.writeBytes(event.outcome.inline());
            }
            event = blobs.size() > MAX_TAKEN ? null : events.poll();
        }
        return pack(taken, blobs.toByteArray());
    }

    static Map<String, Object> json(String run, Outcome outcome) {
        var json = new LinkedHashMap<>(outcome.fields());
        json.put("run", run);
        json.put("partition", outcome.partition());
        if (outcome.inline() != null) {
            json.put("inline_bytes", outcome.inline().length);
        }
        return json;
    }

    static byte[] pack(List<Map<String, Object>> events, byte[] blobs) throws IOException {
        byte[] text = Json.bytes(events);
        return ByteBuffer.allocate(4 + text.length + blobs.length).putInt(text.length).put(text).put(blobs).array();
    }
}
