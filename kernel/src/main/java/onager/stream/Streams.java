package onager.stream;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import onager.failure.Failures;
import onager.rows.ExchangeOutput;
import onager.rows.HeldInput;
import onager.rows.InputSpec;
import onager.rows.PackedFrame;
import onager.store.Store;

/** What an executor streams and reads of others' streams: its hub, the port before it, and the way out. */
public final class Streams {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final int MOST_CANCELLED = 1000;

    private final String name = "streams-" + COUNT.incrementAndGet();
    private final StreamHub hub;
    private final StreamServer server;
    private final StreamPeers peers;
    private final Map<RemoteSource, String> held = new ConcurrentHashMap<>(); // what is read whole, and on behalf of which job group
    private final AtomicLong holding = new AtomicLong(); // bytes of what is being read whole
    private final Set<String> cancelled = new LinkedHashSet<>(); // job groups; what is in it is guarded by it
    private final String address;

    /** *spec* is JSON: {host, port, advertise, token_file, and what `StreamLimits` takes}; the last two may be empty. */
    public Streams(Store store, JsonNode spec) throws IOException {
        String tokens = spec.get("token_file").asText();
        String advertised = spec.get("advertise").asText();
        StreamSecrets secrets = tokens.isEmpty() ? null : new StreamSecrets(tokens);
        hub = new StreamHub(name, store, new StreamLimits(spec));
        try {
            server = new StreamServer(hub, spec.get("host").asText(), spec.get("port").asInt(), secrets);
        } catch (Throwable e) {
            hub.close();
            throw new IOException("no port could be opened: " + Failures.text(e), e);
        }
        address = advertised.isEmpty() ? spec.get("reached").asText() + ":" + server.port() : advertised;
        peers = server.peers(name, hub, address);
    }

    /** Return where others reach it. */
    public String address() {
        return address;
    }

    /** Return an input that is read as a stream. */
    public RemoteInput input(int index, InputSpec spec) {
        return new RemoteInput(name, index, spec);
    }

    /** Read all of *source*, on this thread, which cancelling the job group *group* stops; an IOException where that is too much. */
    public HeldInput hold(RemoteSource source, String group) throws IOException, InterruptedException {
        var frames = new ArrayList<PackedFrame>();
        long bytes = 0L;
        held.put(source, group);
        try {
            if (isCancelled(group)) {
                source.stop();
            }
            for (PackedFrame frame = source.nextPacked(); frame != null; frame = source.nextPacked()) {
                bytes += frame.stored();
                if (holding.addAndGet(frame.stored()) > hub.limits().heldBytes) {
                    throw new IOException("what is streamed for a broadcast or a subquery, " + bytes + " bytes and more, does not fit into the "
                            + hub.limits().heldBytes + " that an executor holds so");
                }
                frames.add(frame);
            }
            return new HeldInput(frames);
        } finally {
            holding.addAndGet(-bytes);
            held.remove(source);
            source.close();
        }
    }

    /** Know of tasks that will begin here. */
    public void expect(StreamedTasks tasks) {
        tasks.names().values().forEach(hub::expect);
    }

    /** Tell readers of tasks that were expected that they will not begin. */
    public void giveUp(StreamedTasks tasks, String why) {
        tasks.names().values().forEach(task -> hub.giveUp(task, "task " + task + " could not begin: " + why));
    }

    /** Return where a stage's tasks put what they stream; *directory*: the stage's, for frames that memory has no place for. */
    public ExchangeOutput output(StreamedTasks tasks, String directory, int buckets) {
        return new HubOutput(name, directory, tasks.names(), buckets);
    }

    private boolean isCancelled(String group) {
        synchronized (cancelled) {
            return cancelled.contains(group);
        }
    }

    /** Stop what is read whole on behalf of a job group, now or later. */
    public void cancelGroup(String group) {
        synchronized (cancelled) {
            cancelled.add(group);
            if (cancelled.size() > MOST_CANCELLED) {
                cancelled.remove(cancelled.iterator().next());
            }
        }
        held.forEach((source, of) -> {
            if (group.equals(of)) {
                source.stop();
            }
        });
    }

    public void closeJob(String job) {
        hub.closeJob(job);
    }

    /** Return {bytes in memory, bytes ever written to files, tasks that began, requests that wait}. */
    public long[] use() {
        return hub.use();
    }

    public void close() {
        peers.close();
        hub.close();
        server.close();
    }
}
