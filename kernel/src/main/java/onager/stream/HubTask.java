package onager.stream;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import onager.store.SpillFile;

/** One execution of a task as the hub of its executor knows it. All of it is guarded by the hub's lock. */
final class HubTask {
    /** ABSENT: somebody asked for it before it began. */
    enum State { ABSENT, OPEN, FINISHED, FAILED }

    final String name;
    final String job;
    State state = State.ABSENT;
    /** Whether it will begin here, or say why it does not. */
    boolean isExpected = false;
    long sinceNs = System.nanoTime();
    String why = "";
    HubChannel[] channels = new HubChannel[0];
    long[] rows = new long[0];
    SpillFile spill = null;
    /** Requests that wait for frames. */
    final List<Poll> polls = new ArrayList<>();
    /** How many answers are being put together of frames that lie in the file. */
    int reads = 0;
    /** Buckets that nobody wants, said before the task began. */
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

    /** Whether nothing is known here of it but that somebody asked. */
    boolean isAbsent() {
        return state == State.ABSENT && !isExpected;
    }

    /** Return what there is to say to *request*, or null when that is nothing yet. What it lets go of is added to *freed*. */
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
            return StreamAnswer.failed("bucket " + request.bucket() + " of " + name + " was read before, or is wanted no more");
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

    /** Drop all frames; return how many bytes of memory that gives. */
    long drop() {
        long freed = Stream.of(channels).mapToLong(HubChannel::close).sum();
        if (spill != null) {
            spill.close();
        }
        return freed;
    }

    /** Give the file back when no frame is left that may be in it. */
    void closeFileIfRead() {
        if (state == State.FINISHED && reads == 0 && Stream.of(channels).allMatch(HubChannel::isEmpty)) {
            spill.close();
        }
    }
}
