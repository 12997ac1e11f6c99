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
import onager.bind.Bound;
import onager.bind.Broadcasts;
import onager.bind.Meters;
import onager.failure.Failures;
import onager.jobs.JobGroups;
import onager.jobs.UnwantedTasks;
import onager.stream.StreamedTasks;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import scala.runtime.BoxedUnit;

/** Runs task sets, each as a Spark job, and collects the outcomes of their partitions. */
public final class Runs {
    private static final int MOST_TAKEN = 8 << 20;

    private final SparkContext sc;
    private final Outputs outputs;
    private final Broadcasts broadcasts;
    private final JobGroups groups;
    private final Map<String, Run> runs = new ConcurrentHashMap<>();
    private final LinkedBlockingQueue<Event> events = new LinkedBlockingQueue<>();

    /** An event of *run*; partition -1: the run has ended. */
    private record Event(String run, Outcome outcome) {}

    /** *run*: the run's name; *nonces* are in the order of *partitions*. */
    private record Spec(String run, List<Integer> partitions, List<String> nonces) {}

    public Runs(SparkContext sc, Outputs outputs, Broadcasts broadcasts, JobGroups groups) {
        this.sc = sc;
        this.outputs = outputs;
        this.broadcasts = broadcasts;
        this.groups = groups;
    }

    /** See `Kernel.submit`. */
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
        var run = new Run(set.run, bound, set.partitions, task);
        runs.put(set.run, run);
        broadcasts.run(bound.broadcasts(), 1);
        run.start();
    }

    /** Stop *partitions* of a run; the others continue. */
    public void cancel(String name, List<Integer> partitions) {
        Run run = runs.get(name);
        if (run != null) {
            run.cancel(partitions);
        }
    }

    /** One running task set: a thread that waits for its Spark job, and queues each partition's outcome as it arrives. */
    private final class Run extends Thread {
        private final String name;
        private final Bound bound;
        private final List<Integer> partitions;
        private final Task task;
        private final Set<Integer> cancelled = new HashSet<>();
        private boolean hasEnded = false;

        Run(String name, Bound bound, List<Integer> partitions, Task task) {
            super("onager-" + name);
            setDaemon(true);
            this.name = name;
            this.bound = bound;
            this.partitions = partitions;
            this.task = task;
        }

        @Override
        public void run() {
            var fields = new LinkedHashMap<String, Object>();
            try {
                groups.within(bound.session(), name, () -> {
                    sc.runJob(bound.rdd(), task, Seqs.<Object>seq(partitions), (index, outcome) -> {
                        events.add(new Event(name, outcome));
                        return BoxedUnit.UNIT;
                    }, Seqs.tag(Outcome.class));
                    return null;
                });
            } catch (Throwable e) {
                fields.put("failure", Failures.describe(e, false));
            } finally {
                end();
                runs.remove(name);
                broadcasts.run(bound.broadcasts(), -1);
                events.add(new Event(name, new Outcome(-1, fields, null)));
            }
        }

        private synchronized void end() {
            hasEnded = true;
            partitions.forEach(partition -> UnwantedTasks.remove(name, partition));
        }

        synchronized void cancel(List<Integer> unwanted) {
            if (hasEnded) {
                return; // nothing would remove the entry again
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

    /** Let who waits in `take` go. */
    public void close() {
        events.add(new Event("", new Outcome(-1, Map.of(), null)));
    }

    /** As `Kernel.take` says. */
    public byte[] take(long timeoutMs) throws IOException, InterruptedException {
        var taken = new ArrayList<Map<String, Object>>();
        var blobs = new ByteArrayOutputStream();
        Event event = events.poll(timeoutMs, TimeUnit.MILLISECONDS);
        while (event != null) {
            taken.add(json(event.run, event.outcome));
            if (event.outcome.inline() != null) {
                blobs.writeBytes(event.outcome.inline());
            }
            event = blobs.size() > MOST_TAKEN ? null : events.poll();
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
