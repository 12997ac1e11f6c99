package onager.testing;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import onager.failure.BrokenStream;
import onager.failure.Failures;
import onager.rows.ExchangeSink;
import onager.rows.ExchangeSource;
import onager.rows.Frame;
import onager.store.SpillFile;

/**
 * The streaming exchange within one process: bounded channels between the tasks of stages that run at the same time.
 *
 * <p>There is a channel for each task of a stage and each of its buckets; whoever reads the bucket takes from it at its own
 * pace. A writer waits while its channel is full. Since tasks read their inputs one after another, and some inputs twice,
 * waiting alone could go round in a circle: `Deadlocks` finds that, and the fullest-waiting channel of the circle takes a frame
 * more. Frames beyond the memory of the whole exchange lie in a file.
 *
 * <p>A channel ends when its writer says so, with the number of rows that it gave. A task that fails, or ends without having
 * said so, stops all others, and the first reason is kept: what others meet because of it is none. All methods may be called from any thread.
 */
public final class StreamExchange {
    private final int frameBytes;
    private final long memoryBytes;
    private final SpillFile spill;
    private final ReentrantLock lock = new ReentrantLock();
    private final StreamTopology stages;
    private long held = 0;
    private long grants = 0;
    private Throwable failure = null;
    private StreamTask failed = null;

    /**
     * *capacityFrames* and *capacityBytes*: of each channel, whichever is reached first, one frame at least; *frameBytes*: of rows
     * in a frame; *memoryBytes*: of all channels; *directory*: where the rest goes.
     */
    public StreamExchange(int capacityFrames, long capacityBytes, int frameBytes, long memoryBytes, String directory) {
        this.stages = new StreamTopology(lock, capacityFrames, capacityBytes);
        this.frameBytes = frameBytes;
        this.memoryBytes = memoryBytes;
        this.spill = new SpillFile(directory);
    }

    // ------------------------------------------------------------ what there is

    /** Add a stage of *partitions* tasks that write *buckets* buckets each; 0: its output goes elsewhere. */
    public void addStage(int stage, int partitions, int buckets) {
        lock.lock();
        try {
            stages.addStage(stage, partitions, buckets);
        } finally {
            lock.unlock();
        }
    }

    /** Let input *input* of *stage* be what *producer* writes. Both were added before. */
    public void addInput(int stage, int input, int producer) {
        lock.lock();
        try {
            stages.addInput(stage, input, producer);
        } finally {
            lock.unlock();
        }
    }

    int frameBytes() {
        return frameBytes;
    }

    int buckets(int stage) {
        return stages.buckets(stage);
    }

    // ------------------------------------------------------------ readers

    /**
     * Let a task read *buckets* of an input, and nothing else of it; what it reads in the end has to be among them. Until
     * every task has said so for every input, channels keep what they were given.
     */
    public void decide(int stage, int partition, int input, int[] buckets) {
        lock.lock();
        try {
            StreamTask task = stages.task(stage, partition);
            StreamLink link = stages.input(stage, input);
            if (!link.undecided.remove(task)) {
                throw new IllegalStateException(task + " said before what it reads of input " + input);
            }
            StreamChannel[][] from = stages.read(stage, input);
            for (StreamChannel[] producer : from) {
                for (int bucket : buckets) {
                    task.cursors.add(producer[bucket].cursor(task));
                }
            }
            letGo(from);
        } finally {
            lock.unlock();
        }
    }

    /** Let a task read all buckets of an input. */
    public void decideAll(int stage, int partition, int input) {
        decide(stage, partition, input, IntStream.range(0, stages.bucketsRead(stage, input)).toArray());
    }

    /** Return what a task reads of an input: a bucket, or all of them (-1), producer after producer. Decided before. */
    public ExchangeSource source(int stage, int partition, int input, int bucket) {
        return source(stage, partition, input, bucket, -1);
    }

    /** The same, of one task of the producer alone, unless that is -1. */
    ExchangeSource source(int stage, int partition, int input, int bucket, int producer) {
        lock.lock();
        try {
            StreamTask task = stages.task(stage, partition);
            StreamChannel[][] from = stages.read(stage, input);
            var cursors = new ArrayList<StreamChannel.Cursor>();
            for (int i = 0; i < from.length; i++) {
                for (int b = 0; b < from[i].length; b++) {
                    if ((bucket < 0 || b == bucket) && (producer < 0 || i == producer)) {
                        cursors.add(unused(task, from[i][b]));
                    }
                }
            }
            return new StreamSource(this, task, cursors);
        } finally {
            lock.unlock();
        }
    }

    /** How many tasks write what an input reads. */
    int producers(int stage, int input) {
        return stages.read(stage, input).length;
    }

    private static StreamChannel.Cursor unused(StreamTask task, StreamChannel channel) {
        for (StreamChannel.Cursor cursor : task.cursors) {
            if (cursor.channel() == channel && !cursor.isUsed) {
                cursor.isUsed = true;
                return cursor;
            }
        }
        throw new IllegalStateException(task + " reads " + channel + " twice, or without having said so");
    }

    /** Return the next frame at *cursor*, or null when its channel has ended as it should. */
    Frame take(StreamTask task, StreamChannel.Cursor cursor) throws IOException, InterruptedException {
        StreamChannel channel = cursor.channel();
        StreamFrame frame;
        boolean shared;
        lock.lockInterruptibly();
        try {
            await(new StreamTask.Wait(task, channel, cursor));
            if (cursor.isAtEnd()) {
                if (cursor.complaint() != null) {
                    throw new IOException(cursor.complaint());
                }
                return null;
            }
            var gone = new ArrayList<StreamFrame>();
            shared = channel.isShared();
            frame = cursor.take(gone);
            letGo(channel, gone);
        } finally {
            lock.unlock();
        }
        return frame.open(shared);
    }

    void close(List<StreamChannel.Cursor> cursors) {
        lock.lock();
        try {
            for (StreamChannel.Cursor cursor : cursors) {
                if (!cursor.isClosed()) {
                    var gone = new ArrayList<StreamFrame>();
                    cursor.close(gone);
                    letGo(cursor.channel(), gone);
                }
            }
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------ writers

    /** Return where a task puts its output. */
    public ExchangeSink sink(int stage, int partition) {
        return new StreamSink(this, stages.task(stage, partition), stages.outputs(stage, partition));
    }

    /** Put a frame into a channel, when there is room; false when nobody reads it. */
    boolean put(StreamChannel channel, Frame frame) throws IOException, InterruptedException {
        boolean fits;
        lock.lockInterruptibly();
        try {
            await(new StreamTask.Wait(channel.producer, channel, null));
            if (!channel.isWanted()) {
                return false;
            }
            fits = held + frame.size() <= memoryBytes || held == 0;
            held += fits ? frame.size() : 0;
        } finally {
            lock.unlock();
        }
        StreamFrame kept = fits ? StreamFrame.inMemory(frame) : StreamFrame.spilled(frame, spill);
        lock.lock();
        try {
            channel.add(kept);
            letGo(channel); // where everybody has stopped reading meanwhile
            wakeReaders(channel);
        } finally {
            lock.unlock();
        }
        return true;
    }

    void finish(StreamChannel[] outputs, long[] rows) throws IOException {
        lock.lock();
        try {
            check();
            for (int i = 0; i < outputs.length; i++) {
                outputs[i].finish(rows[i]);
                wakeReaders(outputs[i]);
            }
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------ ends

    /**
     * A task has ended, well (*why* is null) or not: it reads no more. One that fails, or has not finished its output, is the
     * reason why everybody fails, unless there was one before.
     */
    public void end(int stage, int partition, Throwable why) {
        lock.lock();
        try {
            StreamTask task = stages.task(stage, partition);
            StreamChannel[] outputs = stages.outputs(stage, partition);
            if (why != null) {
                fail(task, why);
            }
            for (int i = 0; i < outputs.length && why == null; i++) {
                if (!outputs[i].hasFinished()) {
                    fail(task, new IOException(task + " ended without saying that its output was complete"));
                }
            }
            for (StreamLink link : stages.inputs(stage)) {
                if (link.undecided.remove(task)) {
                    letGo(stages.read(stage, link.input));
                }
            }
            close(task.cursors);
        } finally {
            lock.unlock();
        }
    }

    /** Let everybody fail: whoever waits, and whoever asks from now on. The first reason is kept, and the task that it comes from. */
    void fail(StreamTask task, Throwable why) {
        lock.lock();
        try {
            if (failure == null && !isConsequence(why)) {
                failure = why;
                failed = task;
            }
            if (failure != null) {
                stages.tasks().forEach(each -> each.changed.signalAll());
            }
        } finally {
            lock.unlock();
        }
    }

    private static boolean isConsequence(Throwable why) {
        return Failures.chain(why).stream().anyMatch(BrokenStream.class::isInstance);
    }

    /** Stop everybody. */
    public void cancel(String why) {
        fail(null, new org.apache.spark.TaskKilledException(why));
    }

    /** Return the first failure, or null. */
    public Throwable failure() {
        lock.lock();
        try {
            return failure;
        } finally {
            lock.unlock();
        }
    }

    /** Return stage and partition of the task that failed first; null when none did, or nobody's task is to blame. */
    public int[] failed() {
        lock.lock();
        try {
            return failed == null ? null : new int[] {failed.stage, failed.partition};
        } finally {
            lock.unlock();
        }
    }

    /** Drop everything, frames too: whoever still holds the exchange does not hold them. Nobody uses it any more. */
    public void close() {
        cancel("the exchange is closed");
        lock.lock();
        try {
            for (StreamChannel channel : stages.channels()) {
                var gone = new ArrayList<StreamFrame>();
                channel.drop(gone);
                letGo(channel, gone);
            }
        } finally {
            lock.unlock();
        }
        spill.close();
    }

    /** Return how many frames were let in beyond a channel's capacity, so that nobody waits in a circle. */
    public long grants() {
        lock.lock();
        try {
            return grants;
        } finally {
            lock.unlock();
        }
    }

    public long spilledBytes() {
        return spill.written();
    }

    /** Bytes of frames in memory. */
    public long heldBytes() {
        lock.lock();
        try {
            return held;
        } finally {
            lock.unlock();
        }
    }

    /** Return who waits for what, a line each. */
    public String waits() {
        lock.lock();
        try {
            return stages.tasks().stream().flatMap(task -> task.waits.stream()).map(wait -> wait + "\n").collect(Collectors.joining());
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------ waiting, with the lock held

    private void check() throws IOException {
        if (failure != null) {
            throw new BrokenStream("stopped: " + Failures.text(failure), failure);
        }
    }

    private void await(StreamTask.Wait wait) throws IOException, InterruptedException {
        check();
        if (!wait.isOn()) {
            return;
        }
        wait.task().waits.add(wait);
        try {
            StreamChannel granted = Deadlocks.relieve(stages.tasks());
            if (granted != null) {
                grants++;
                granted.producer.changed.signalAll();
            }
            while (wait.isOn()) {
                wait.task().changed.await();
                check();
            }
        } finally {
            wait.task().waits.remove(wait);
        }
    }

    private void wakeReaders(StreamChannel channel) {
        channel.readers().forEach(task -> task.changed.signalAll());
    }

    private void letGo(StreamChannel[][] all) {
        for (StreamChannel[] producer : all) {
            for (StreamChannel channel : producer) {
                letGo(channel);
            }
        }
    }

    private void letGo(StreamChannel channel) {
        var gone = new ArrayList<StreamFrame>();
        channel.forget(gone);
        letGo(channel, gone);
    }

    private void letGo(StreamChannel channel, List<StreamFrame> gone) {
        for (StreamFrame frame : gone) {
            held -= frame.isInMemory() ? frame.size : 0;
        }
        channel.producer.changed.signalAll();
    }
}
