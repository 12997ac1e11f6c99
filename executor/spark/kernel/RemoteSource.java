package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * Reads what tasks on other executors, and on this one, stream. The thread that reads is the one that asks; answers come on others.
 *
 * <p>Frames are given out as they come, unless they have to be in the order of the producers. A producer that fails or falls silent, and one
 * whose rows are not as many as it says, is an exception: there is no end but the one that every producer has told.
 */
final class RemoteSource implements ExchangeSource {
    private static final int MOST_ASKED = 32;
    private static final int LEAST_BYTES = 64 << 10;
    private static final int MOST_BYTES = 1 << 20;
    private static final long PAUSE_NS = 100000000L;
    private static final int TURN_MS = 200;

    private final LZ4SafeDecompressor lz4 = LZ4Factory.fastestInstance().safeDecompressor();
    private final StreamPeers peers;
    private final StreamLimits limits;
    private final int buckets;
    private final boolean drains;
    private final boolean inOrder;
    private final long prefetchBytes;
    private final TaskContext context;
    private final List all;
    private final ArrayList live; // those that are not done
    private final int waitMs;
    private final int mostBytes;
    private int turn = 0; // where to look first for one to ask,
    private int served = 0; // and for one that has frames
    private int asking = 0;
    private long buffered = 0;
    private boolean isClosed = false;
    private Throwable failure = null;
    private byte[] plain = new byte[0];
    private byte[] before = new byte[0]; // that of the frame given out before

    /**
     * *channels*: in order of producers, which have *buckets* each; *drains*: nobody else reads them; *prefetchBytes*: of frames that it
     * may hold; *context*: null outside of a task.
     */
    RemoteSource(StreamPeers peers, StreamLimits limits, List channels, int buckets, boolean drains, boolean inOrder, long prefetchBytes,
            TaskContext context) {
        this.peers = peers;
        this.limits = limits;
        this.all = channels;
        this.live = new ArrayList(channels);
        this.buckets = buckets;
        this.drains = drains;
        this.inOrder = inOrder;
        this.prefetchBytes = prefetchBytes;
        this.context = context;
        int atOnce = Math.max(1, Math.min(channels.size(), MOST_ASKED));
        this.waitMs = channels.size() > MOST_ASKED ? TURN_MS : limits.pollMs;
        this.mostBytes = (int) Math.max((long) LEAST_BYTES, Math.min((long) MOST_BYTES, prefetchBytes / atOnce));
    }

    public Frame next() throws IOException, InterruptedException {
        PackedFrame packed = nextPacked();
        if (packed == null) {
            return null;
        }
        byte[] swap = before;
        before = plain;
        Frame frame = packed.open(swap, lz4);
        plain = frame.bytes;
        return frame;
    }

    /** Return the next frame as it came, or null at the end. */
    PackedFrame nextPacked() throws IOException, InterruptedException {
        while (true) {
            for (RemoteChannel channel = toAsk(); channel != null; channel = toAsk()) {
                ask(channel);
            }
            synchronized (this) {
                check();
                RemoteChannel ready = ready();
                if (ready != null) {
                    PackedFrame frame = (PackedFrame) ready.frames.removeFirst();
                    buffered -= frame.stored;
                    count(ready, frame);
                    return frame;
                }
                if (live.isEmpty()) {
                    return null;
                }
                wait(pauseMs());
            }
        }
    }

    private void check() throws IOException {
        if (failure instanceof TaskKilledException) {
            throw (TaskKilledException) failure;
        }
        if (failure != null) {
            throw new BrokenStream(failure.getMessage(), failure);
        }
    }

    private void count(RemoteChannel channel, PackedFrame frame) {
        if (context != null && peers.isHere(channel.address)) {
            context.taskMetrics().shuffleReadMetrics().incLocalBytesRead((long) frame.stored);
        } else if (context != null) {
            context.taskMetrics().shuffleReadMetrics().incRemoteBytesRead((long) frame.stored);
        }
    }

    // ------------------------------------------------------------ asking

    /** Return a channel that is to be asked now, marked as being asked; null when there is none. */
    synchronized RemoteChannel toAsk() {
        if (isClosed || failure != null || asking >= MOST_ASKED) {
            return null;
        }
        prune();
        long now = System.nanoTime();
        for (int i = 0; i < live.size(); i++) {
            int at = inOrder ? i : (turn + i) % live.size();
            RemoteChannel channel = (RemoteChannel) live.get(at);
            boolean mayAsk = buffered < prefetchBytes || i == 0 && channel.frames.isEmpty();
            if (mayAsk && !channel.isAsking && !channel.isEnded && channel.notBeforeNs <= now) {
                channel.isAsking = true;
                asking++;
                turn = at + 1;
                return channel;
            }
        }
        return null;
    }

    /** Return how long there is nothing to do, unless an answer comes. */
    private long pauseMs() {
        long until = Long.MAX_VALUE;
        for (int i = 0; i < live.size(); i++) {
            RemoteChannel channel = (RemoteChannel) live.get(i);
            if (!channel.isAsking && !channel.isEnded) {
                until = Math.min(until, channel.notBeforeNs);
            }
        }
        long now = System.nanoTime();
        return until == Long.MAX_VALUE || until <= now ? 1000L : 1L + (until - now) / 1000000L;
    }

    private void ask(final RemoteChannel channel) throws InterruptedException {
        StreamReply reply = new StreamReply() {
            public void answer(StreamAnswer answer) {
                take(channel, answer);
            }

            public void lose(Throwable why) {
                if (why instanceof RuntimeException) {
                    refuse(channel, why); // it has answered, and says no
                } else {
                    retry(channel, why);
                }
            }
        };
        try {
            peers.ask(channel.address, new StreamRequest(channel.task, channel.bucket, buckets, channel.next, channel.firstRow, mostBytes, waitMs,
                    drains), reply);
        } catch (IOException e) {
            retry(channel, e);
        } catch (RuntimeException e) {
            if (root(e) instanceof IOException) {
                retry(channel, e); // the connection broke while they made each other's acquaintance
            } else {
                refuse(channel, e);
            }
        }
    }

    private static Throwable root(Throwable e) {
        Throwable at = e;
        for (int depth = 0; at.getCause() != null && depth < 50; depth++) {
            at = at.getCause();
        }
        return at;
    }

    // ------------------------------------------------------------ on other threads

    synchronized void take(RemoteChannel channel, StreamAnswer answer) {
        answered(channel);
        channel.lostNs = 0;
        if (answer.kind == StreamAnswer.FAILED) {
            stop(new IOException(answer.why));
            return;
        }
        if (answer.kind == StreamAnswer.ABSENT) {
            long now = System.nanoTime();
            channel.absentNs = channel.absentNs == 0L ? now : channel.absentNs;
            channel.notBeforeNs = now + PAUSE_NS;
            if (now - channel.absentNs > limits.absentNs) {
                stop(new IOException("task " + channel.task + " has not begun at " + channel.address));
            }
            return;
        }
        channel.absentNs = 0;
        channel.next += answer.skippedFrames;
        channel.rows += answer.skippedRows;
        for (int i = 0; i < answer.frames.size() && !isClosed; i++) {
            PackedFrame frame = (PackedFrame) answer.frames.get(i);
            channel.frames.addLast(frame);
            channel.next++;
            channel.rows += frame.rows;
            buffered += frame.stored;
        }
        if (answer.isEnd) {
            channel.isEnded = true;
            if (channel.rows != answer.rows && !isClosed) {
                stop(new IOException(channel + " gave " + answer.rows + " rows, but " + channel.rows + " of them came"));
            }
        }
    }

    synchronized void retry(RemoteChannel channel, Throwable why) {
        answered(channel);
        long now = System.nanoTime();
        channel.lostNs = channel.lostNs == 0L ? now : channel.lostNs;
        channel.notBeforeNs = now + PAUSE_NS;
        if (now - channel.lostNs > limits.connectNs) {
            stop(new IOException("the streams of " + channel.address + " cannot be reached: " + Failures.text(why), why));
        }
    }

    private void refuse(RemoteChannel channel, Throwable why) {
        stop(new IOException("the streams of " + channel.address + " refuse this executor: " + Failures.text(root(why)).split("\n")[0], why));
    }

    private void answered(RemoteChannel channel) {
        channel.isAsking = false;
        asking--;
        notifyAll();
    }

    synchronized void stop(Throwable why) {
        failure = failure == null ? why : failure;
        notifyAll();
    }

    /** Let whoever reads here stop. */
    void stop() {
        stop(new TaskKilledException("cancelled"));
    }

    // ------------------------------------------------------------ the lock is held

    private void prune() {
        Iterator each = live.iterator();
        while (each.hasNext()) {
            if (((RemoteChannel) each.next()).isDone()) {
                each.remove();
            }
        }
    }

    /** Return a channel that has frames, and may give them out now. */
    private RemoteChannel ready() {
        prune();
        for (int i = 0; i < (inOrder ? Math.min(1, live.size()) : live.size()); i++) {
            int at = inOrder ? i : (served + i) % live.size();
            RemoteChannel channel = (RemoteChannel) live.get(at);
            if (!channel.frames.isEmpty()) {
                served = at + 1;
                return channel;
            }
        }
        return null;
    }

    public void close() {
        List unread = new ArrayList();
        synchronized (this) {
            if (isClosed) {
                return;
            }
            isClosed = true;
            for (int i = 0; i < all.size(); i++) {
                RemoteChannel channel = (RemoteChannel) all.get(i);
                channel.frames.clear();
                if (!channel.isEnded) {
                    unread.add(channel);
                }
            }
            live.clear();
            buffered = 0;
        }
        if (drains) {
            peers.drop(unread);
        }
    }
}
