package onager.stream;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import onager.failure.BrokenStream;
import onager.failure.Failures;
import onager.rows.ExchangeSource;
import onager.rows.FetchWait;
import onager.rows.Frame;
import onager.rows.PackedFrame;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * Reads streams of tasks on other executors and on this one. The reading thread sends requests; answers arrive on other threads.
 *
 * <p>Frames are returned as they arrive, unless the order of producers matters. A producer that fails, no longer answers, or sends another
 * number of rows than it reports, causes an exception: the end is returned only after every producer has reported its own.
 */
public final class RemoteSource implements ExchangeSource {
    private static final int MAX_ASKED = 32;
    private static final int LEAST_BYTES = 64 << 10;
    private static final int MAX_BYTES = 1 << 20;
    private static final long PAUSE_NS = 100_000_000L;
    private static final int TURN_MS = 200;

    private final LZ4SafeDecompressor lz4 = LZ4Factory.fastestInstance().safeDecompressor();
    private final StreamExecutors executors;
    private final int buckets;
    private final boolean drains;
    private final boolean inOrder;
    private final long prefetchBytes;
    private final TaskContext context;
    private final FetchWait wait;
    private final List<RemoteChannel> all;
    private final List<RemoteChannel> live; // the channels that are not done
    private final int waitMs;
    private final int mostBytes;
    private int turn = 0; // where the search for a channel to ask starts
    private int served = 0; // where the search for a channel with frames starts
    private int asking = 0;
    private long buffered = 0;
    private boolean isClosed = false;
    private Throwable failure = null;
    private byte[] plain = new byte[0];
    private byte[] before = new byte[0]; // of the frame returned before

    /**
     * *channels*: in the order of producers; *buckets*: how many each producer has; *drains*: nothing else reads them; *prefetchBytes*: the
     * limit for frames held in memory; *context*: null outside a task.
     */
    RemoteSource(StreamExecutors executors, List<RemoteChannel> channels, int buckets, boolean drains, boolean inOrder, long prefetchBytes,
            TaskContext context) {
        this.executors = executors;
        this.all = channels;
        this.live = new ArrayList<>(channels);
        this.buckets = buckets;
        this.drains = drains;
        this.inOrder = inOrder;
        this.prefetchBytes = prefetchBytes;
        this.context = context;
        this.wait = new FetchWait(context);
        int atOnce = Math.max(1, Math.min(channels.size(), MAX_ASKED));
        this.waitMs = channels.size() > MAX_ASKED ? TURN_MS : executors.limits().pollMs;
        this.mostBytes = (int) Math.max(LEAST_BYTES, Math.min(MAX_BYTES, prefetchBytes / atOnce));
    }

    @Override
    public Frame next() throws IOException, InterruptedException {
        long begunNs = System.nanoTime();
        PackedFrame packed;
        try {
            packed = nextPacked();
        } finally {
            wait.since(begunNs);
        }
        if (packed == null) {
            return null;
        }
        byte[] swap = before;
        before = plain;
        Frame frame = packed.open(swap, lz4);
        plain = frame.bytes();
        return frame;
    }

    /** Return the next frame, still packed, or null at the end. */
    PackedFrame nextPacked() throws IOException, InterruptedException {
        while (true) {
            for (RemoteChannel channel = toAsk(); channel != null; channel = toAsk()) {
                ask(channel);
            }
            synchronized (this) {
                check();
                RemoteChannel ready = ready();
                if (ready != null) {
                    PackedFrame frame = ready.frames.removeFirst();
                    buffered -= frame.stored();
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
        if (failure instanceof TaskKilledException killed) {
            throw killed;
        }
        if (failure != null) {
            throw new BrokenStream(failure.getMessage(), failure);
        }
    }

    private void count(RemoteChannel channel, PackedFrame frame) {
        if (context != null) {
            var metrics = context.taskMetrics().shuffleReadMetrics();
            if (executors.isHere(channel.address)) {
                metrics.incLocalBytesRead(frame.stored());
            } else {
                metrics.incRemoteBytesRead(frame.stored());
            }
        }
    }

    // ------------------------------------------------------------ asking

    /** Return a channel to ask now, and mark it as asked; null if there is none. */
    private synchronized RemoteChannel toAsk() {
        if (isClosed || failure != null || asking >= MAX_ASKED) {
            return null;
        }
        live.removeIf(RemoteChannel::isDone);
        long now = System.nanoTime();
        for (int i = 0; i < live.size(); i++) {
            int at = inOrder ? i : (turn + i) % live.size();
            RemoteChannel channel = live.get(at);
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

    /** Return how long to wait for an answer until there is something else to do, in ms. */
    private long pauseMs() {
        long until = live.stream().filter(channel -> !channel.isAsking && !channel.isEnded).mapToLong(channel -> channel.notBeforeNs).min()
                .orElse(Long.MAX_VALUE);
        long now = System.nanoTime();
        return until == Long.MAX_VALUE || until <= now ? 1000L : 1L + (until - now) / 1_000_000L;
    }

    private void ask(RemoteChannel channel) throws InterruptedException {
        var reply = new StreamReply() {
            @Override
            public void answer(StreamAnswer answer) {
                take(channel, answer);
            }

            @Override
            public void lose(Throwable why) {
                if (why instanceof RuntimeException) {
                    refuse(channel, why); // it answered, and refused
                } else {
                    retry(channel, why);
                }
            }
        };
        try {
            executors.ask(channel.address, new StreamRequest(channel.task, channel.bucket, buckets, channel.next, channel.firstRow, mostBytes,
                    waitMs, drains), reply);
        } catch (IOException e) {
            retry(channel, e);
        } catch (RuntimeException e) {
            if (Failures.root(e) instanceof IOException) {
                retry(channel, e); // the connection broke during authentication
            } else {
                refuse(channel, e);
            }
        }
    }

    // ------------------------------------------------------------ on other threads

    private synchronized void take(RemoteChannel channel, StreamAnswer answer) {
        answered(channel);
        channel.lostNs = 0;
        switch (answer.kind()) {
            case FAILED -> stop(new IOException(answer.why()));
            case ABSENT -> {
                long now = System.nanoTime();
                channel.absentNs = channel.absentNs == 0L ? now : channel.absentNs;
                channel.notBeforeNs = now + PAUSE_NS;
                if (now - channel.absentNs > executors.limits().absentNs) {
                    stop(new IOException("task " + channel.task + " has not started at " + channel.address));
                }
            }
            case FRAMES -> takeFrames(channel, answer);
        }
    }

    private void takeFrames(RemoteChannel channel, StreamAnswer answer) {
        channel.absentNs = 0;
        channel.next += answer.skippedFrames();
        channel.rows += answer.skippedRows();
        for (PackedFrame frame : isClosed ? List.<PackedFrame>of() : answer.frames()) {
            channel.frames.addLast(frame);
            channel.next++;
            channel.rows += frame.rows();
            buffered += frame.stored();
        }
        if (answer.isEnd()) {
            channel.isEnded = true;
            if (channel.rows != answer.rows() && !isClosed) {
                stop(new IOException(channel + " gave " + answer.rows() + " rows, but " + channel.rows + " of them came"));
            }
        }
    }

    private synchronized void retry(RemoteChannel channel, Throwable why) {
        answered(channel);
        long now = System.nanoTime();
        channel.lostNs = channel.lostNs == 0L ? now : channel.lostNs;
        channel.notBeforeNs = now + PAUSE_NS;
        if (now - channel.lostNs > executors.limits().connectNs) {
            stop(new IOException("the streams of " + channel.address + " cannot be reached: " + Failures.text(why), why));
        }
    }

    private void refuse(RemoteChannel channel, Throwable why) {
        String said = Failures.text(Failures.root(why)).split("\n")[0];
        stop(new IOException("the streams of " + channel.address + " refuse this executor: " + said, why));
    }

    private void answered(RemoteChannel channel) {
        channel.isAsking = false;
        asking--;
        notifyAll();
    }

    private synchronized void stop(Throwable why) {
        failure = failure == null ? why : failure;
        notifyAll();
    }

    /** Stop the reader. */
    void stop() {
        stop(new TaskKilledException("cancelled"));
    }

    // ------------------------------------------------------------ the lock is held

    /** Return a channel whose frames may be returned now; null if there is none. */
    private RemoteChannel ready() {
        live.removeIf(RemoteChannel::isDone);
        for (int i = 0; i < (inOrder ? Math.min(1, live.size()) : live.size()); i++) {
            int at = inOrder ? i : (served + i) % live.size();
            RemoteChannel channel = live.get(at);
            if (!channel.frames.isEmpty()) {
                served = at + 1;
                return channel;
            }
        }
        return null;
    }

    @Override
    public void close() {
        List<RemoteChannel> unread;
        synchronized (this) {
            if (isClosed) {
                return;
            }
            isClosed = true;
            unread = all.stream().filter(channel -> !channel.isEnded).toList();
            all.forEach(channel -> channel.frames.clear());
            live.clear();
            buffered = 0;
        }
        if (drains) {
            executors.drop(unread);
        }
    }
}
