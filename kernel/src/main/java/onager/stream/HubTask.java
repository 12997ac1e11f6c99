package onager.stream;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import onager.store.SpillFile;

/** The hub's state of one execution of a task, guarded by the hub's lock. */
final class HubTask {
    /** ABSENT: a reader asked for it before it started. */
    enum State { ABSENT, OPEN, FINISHED, FAILED }

    final String name;
    final String job;
    State state = State.ABSENT;
    /** Whether it will start here, or report why it does not. */
    boolean isExpected = false;
    long sinceNs = System.nanoTime();
    String why = "";
    HubChannel[] channels = new HubChannel[0];
    long[] rows = new long[0];
    SpillFile spill = null;
    /** Requests that wait for frames. */
    final List<Poll> polls = new ArrayList<>();
    /** The number of answers that are being read from the file. */
    int reads = 0;
    /** Buckets that were dropped before the task started. */
    final Set<Integer> unwanted = new HashSet<>();

    HubTask(String name) {
        this.name = name;
        this.job = StreamRequest.jobOf(name);
    }

    /** A request that waits. */
    record Poll(StreamRequest request, StreamReply reply, long deadlineNs) {
        Poll(StreamRequest request, StreamReply reply) {
            this(request, reply, System.nanoTime() + request.waitMs() * 1_000_000L);
        }
    }

    void begin(int buckets, SpillFile spill) {
        state = State.OPEN;
        sinceNs = System.nanoTime();
        this.spill = spill;
        channels = new HubChannel[buckets];
        for (int i = 0; i < buckets; i++) {
            channels[i] = new HubChannel();
            channels[i].isClosed = unwanted.contains(i);
        }
    }

    /** Whether only requests for it are known, but not the task. */
    boolean isAbsent() {
        return state == State.ABSENT && !isExpected;
    }

    /** Return the answer to *request*, or null if there is none yet. The bytes that it frees are added to *freed*. */
    StreamAnswer answer(StreamRequest request, long[] freed) {
        if (state == State.FAILED) {
            return StreamAnswer.failed(why);
        }
        if (state == State.ABSENT) {
            return null;
        }
        if (request.buckets() != channels.length || request.bucket() < 0 || request.bucket() >= channels.length) {
            return StreamAnswer.failed(name + " has " + channels.length + " buckets, but one of " + request.buckets() + " was asked for");
        }
        HubChannel channel = channels[request.bucket()];
        if (channel.isClosed || !channel.has(request.from())) {
            return StreamAnswer.failed("bucket " + request.bucket() + " of " + name + " was already read, or was dropped");
        }
        channel.askedNs = System.nanoTime();
        if (request.drains()) {
            freed[0] += channel.drop(request.from());
        } else {
            channel.isKept = true;
        }
        HubChannel.Found found = channel.get(request.from(), request.firstRow(), request.mostBytes());
        if (state == State.FINISHED && request.from() + found.count() == channel.end()) {
            if (request.drains()) {
                freed[0] += channel.close();
            }
            return StreamAnswer.last(found, rows[request.bucket()]);
        }
        return found.count() == 0 ? null : StreamAnswer.frames(found);
    }

    /** Drop all frames; return how many bytes of memory that frees. */
    long drop() {
        long freed = Stream.of(channels).mapToLong(HubChannel::close).sum();
        if (spill != null) {
            spill.close();
        }
        return freed;
    }

    /** Close the file if no frame in it is needed any more. */
    void closeFileIfRead() {
        if (state == State.FINISHED && reads == 0 && Stream.of(channels).allMatch(HubChannel::isEmpty)) {
            spill.close();
        }
    }
}
