package onager.stream;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import onager.failure.BrokenStream;
import onager.failure.ExchangeFailure;
import onager.rows.PackedFrame;
import onager.store.SpillFile;
import onager.store.Store;
import org.apache.spark.TaskKilledException;

/**
 * The streamed frames of an executor's tasks, from when they are written until they are read.
 *
 * <p>There is a channel for each execution and bucket. Memory is bounded, for each channel and for all together. A writer waits for room as
 * long as a reader can be expected to make some; after that, its frames go to a file. So every writer finishes, whatever its readers do,
 * and nothing waits forever.
 *
 * <p>Frames of a bucket with a single reader are dropped once it has received them, or drops the bucket; all others are kept until the job
 * is closed. Thread-safe.
 */
final class StreamHub {
    private static final int MAX_CLOSED_JOBS = 4096;
    /** How long requests for tasks that never start are remembered. */
    private static final long ABSENT_NS = 300L * 1_000_000_000L;
    private static final long TICK_MS = 250L;
    private static final long END_MS = 10_000L;

    private final Store store;
    private final StreamLimits limits;
    private final ReentrantLock lock = new ReentrantLock();
    /** Signalled when memory is freed, or when waiting writers must check again. */
    private final Condition changed = lock.newCondition();
    private final Map<String, HubTask> tasks = new LinkedHashMap<>();
    private final Set<String> closedJobs = new LinkedHashSet<>();
    private final Thread keeper = new Thread(this::keep, "onager-stream-keeper");
    private long held = 0;
    private long spilled = 0;
    private boolean isClosed = false;

    StreamHub(Store store, StreamLimits limits) {
        this.store = store;
        this.limits = limits;
        keeper.setDaemon(true);
        keeper.start();
    }

    StreamLimits limits() {
        return limits;
    }

    /** An answer to a request that waited; *task*: the one whose frames it has, or null. */
    private record Done(HubTask.Poll poll, StreamAnswer answer, HubTask task) {}

    /** A change under the lock; answers that it makes possible go to *done*, and are sent after the lock is released. */
    private interface Change {
        void make(List<Done> done) throws IOException;
    }

    private void locked(Change change) throws IOException {
        var done = new ArrayList<Done>();
        lock.lock();
        try {
            change.make(done);
        } finally {
            lock.unlock();
        }
        deliver(done);
    }

    /** Apply a change that throws nothing. */
    private void quietly(Change change) {
        try {
            locked(change);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private boolean isOver(String task) {
        return isClosed || closedJobs.contains(StreamRequest.jobOf(task));
    }

    // ------------------------------------------------------------ writers

    /** Prepare for executions of a stage; called once, before any starts. */
    void prepare(String directory) throws IOException {
        store.prepare(directory);
    }

    /** Announce that the execution *name* will start here, so that readers wait for it as long as binding takes. */
    void expect(String name) {
        quietly(done -> {
            if (!isOver(name)) {
                find(name).isExpected = true;
            }
        });
    }

    /** The expected execution *name* will not start. */
    void giveUp(String name, String why) {
        quietly(done -> {
            HubTask task = tasks.get(name);
            if (task != null && task.state == HubTask.State.ABSENT) {
                fail(task, why, done);
            }
        });
    }

    /** Start the execution *task*, and return its state. */
    HubTask begin(String task, int buckets, String directory, String file) throws IOException {
        SpillFile spill = store.spill(directory, file);
        var begun = new HubTask[1];
        locked(done -> {
            if (isOver(task)) {
                throw new TaskKilledException("the job has ended");
            }
            HubTask found = begun[0] = find(task);
            if (found.state != HubTask.State.ABSENT) {
                throw new BrokenStream("task " + task + " has already streamed here", null);
            }
            found.begin(buckets, spill);
            look(found, done);
        });
        return begun[0];
    }

    /** Add a frame to a bucket, in memory or in the file; return false if nobody will read it. */
    boolean put(HubTask task, int bucket, PackedFrame frame) throws IOException, InterruptedException {
        HubChannel channel = task.channels[bucket];
        lock.lockInterruptibly();
        try {
            long left = patience(task, channel, frame);
            while (left > 0L && isWanted(task, channel)) {
                changed.awaitNanos(left);
                left = patience(task, channel, frame);
            }
            if (!isWanted(task, channel)) {
                return false;
            }
            if (left == 0L) {
                add(channel, frame);
                return true;
            }
        } finally {
            var done = new ArrayList<Done>();
            look(task, done);
            lock.unlock();
            deliver(done);
        }
        PackedFrame written = spill(task, frame);
        var isTaken = new boolean[1];
        locked(done -> {
            isTaken[0] = isWanted(task, channel);
            if (isTaken[0]) {
                spilled += frame.stored();
                add(channel, written);
                look(task, done);
            }
        });
        return isTaken[0];
    }

    private PackedFrame spill(HubTask task, PackedFrame frame) throws IOException {
        try {
            return frame.spilled(task.spill);
        } catch (ClosedChannelException e) {
            throw new BrokenStream("stopped: the stream of " + task.name + " is no longer wanted", e);
        } catch (IOException e) {
            throw ExchangeFailure.ofWrite(store.root(), e);
        }
    }

    /** Return how long to wait for room at most; 0: there is room, -1: do not wait. */
    private long patience(HubTask task, HubChannel channel, PackedFrame frame) {
        boolean isAsked = channel.askedNs != 0L && !channel.isKept;
        boolean hasRoom = channel.held == 0L || channel.held + frame.stored() <= limits.channelBytes;
        // A reader that has no frames gets one even if memory is short, since there are few such readers.
        if (hasRoom && (held + frame.stored() <= limits.memoryBytes || held == 0L || isAsked && channel.held == 0L)) {
            return 0L;
        }
        if (channel.isKept) {
            return -1L;
        }
        long until = isAsked ? channel.askedNs + limits.readerPatienceNs : task.sinceNs + limits.patienceNs;
        long left = until - System.nanoTime();
        return left > 0L ? left : -1L;
    }

    private static boolean isWanted(HubTask task, HubChannel channel) throws IOException {
        checkGoesOn(task);
        return !channel.isClosed;
    }

    private static void checkGoesOn(HubTask task) throws IOException {
        if (task.state == HubTask.State.FAILED) {
            throw new BrokenStream("stopped: " + task.why, null);
        }
    }

    private void add(HubChannel channel, PackedFrame frame) {
        channel.add(frame);
        held += frame.held();
    }

    /** The output of *task* is complete; *rows*: by bucket. */
    void finish(HubTask task, long[] rows) throws IOException {
        locked(done -> {
            checkGoesOn(task);
            task.state = HubTask.State.FINISHED;
            task.rows = rows.clone();
            look(task, done);
            task.closeFileIfRead();
        });
    }

    /** The output of *task* is incomplete; its readers learn why. */
    void fail(HubTask task, String why) {
        quietly(done -> fail(task, why, done));
    }

    private void fail(HubTask task, String why, List<Done> done) {
        if (task.state == HubTask.State.FAILED) {
            return;
        }
        task.state = HubTask.State.FAILED;
        task.why = why;
        held -= task.drop();
        changed.signalAll();
        look(task, done);
    }

    // ------------------------------------------------------------ readers

    /** Answer a request, now or once there is an answer. */
    void ask(StreamRequest request, StreamReply reply) {
        var poll = new HubTask.Poll(request, reply);
        quietly(done -> {
            if (isOver(request.task())) {
                done.add(new Done(poll, StreamAnswer.failed("the job has ended there"), null));
            } else {
                HubTask task = find(request.task());
                task.polls.add(poll);
                look(task, done);
            }
        });
    }

    /** Drop a bucket, which nobody wants any more. */
    void drop(String name, int bucket) {
        quietly(done -> {
            if (isOver(name)) {
                return;
            }
            HubTask task = find(name);
            if (task.state == HubTask.State.ABSENT) {
                task.unwanted.add(bucket);
            } else if (bucket < task.channels.length) {
                held -= task.channels[bucket].close();
                task.closeFileIfRead();
            }
            changed.signalAll();
        });
    }

    // ------------------------------------------------------------ the lock is held

    private HubTask find(String name) {
        return tasks.computeIfAbsent(name, HubTask::new);
    }

    /** Move the requests to a task that can be answered now, with their answers, to *done*. */
    private void look(HubTask task, List<Done> done) {
        var freed = new long[1];
        for (int i = task.polls.size() - 1; i >= 0; i--) {
            HubTask.Poll poll = task.polls.get(i);
            StreamAnswer answer = task.answer(poll.request(), freed);
            if (answer != null) {
                task.polls.remove(i);
                task.reads += answer.hasToRead() ? 1 : 0;
                done.add(new Done(poll, answer, task));
            }
        }
        if (freed[0] > 0L || !done.isEmpty()) {
            held -= freed[0];
            changed.signalAll(); // writers that wait for room must know that a reader has asked
        }
    }

    // ------------------------------------------------------------ the lock is not held

    private void deliver(List<Done> done) {
        for (Done one : done) {
            StreamReply reply = one.poll.reply();
            boolean hasToRead = one.answer.hasToRead();
            try {
                reply.answer(hasToRead ? one.answer.loaded() : one.answer);
            } catch (Throwable e) { // for example out of memory: the reader must get an answer, and this thread must continue
                reply.lose(e);
            }
            if (hasToRead) {
                quietly(others -> one.task.reads--);
            }
        }
        for (Done one : done) {
            if (one.task != null) {
                quietly(others -> one.task.closeFileIfRead());
            }
        }
    }

    // ------------------------------------------------------------ keeping order

    private void keep() {
        while (true) {
            try {
                if (!expire()) {
                    return;
                }
                Thread.sleep(TICK_MS);
            } catch (InterruptedException e) {
                return;
            } catch (Throwable e) {
                // for example out of memory; the rest waits for the next round
            }
        }
    }

    /** Answer requests whose wait is over, and forget tasks that never started; return false once the hub is closed. */
    private boolean expire() {
        var goesOn = new boolean[1];
        quietly(done -> {
            goesOn[0] = !isClosed;
            long now = System.nanoTime();
            for (var each = tasks.values().iterator(); each.hasNext();) {
                HubTask task = each.next();
                for (int i = task.polls.size() - 1; i >= 0; i--) {
                    HubTask.Poll poll = task.polls.get(i);
                    if (poll.deadlineNs() <= now) {
                        task.polls.remove(i);
                        done.add(new Done(poll, task.isAbsent() ? StreamAnswer.absent() : StreamAnswer.nothing(), null));
                    }
                }
                if (task.isAbsent() && task.polls.isEmpty() && (task.unwanted.isEmpty() || now - task.sinceNs > ABSENT_NS)) {
                    each.remove();
                }
            }
        });
        return goesOn[0];
    }

    /** Drop a job's frames, stop readers and writers that wait, and accept no more frames of it. */
    void closeJob(String job) {
        quietly(done -> {
            closedJobs.add(job);
            if (closedJobs.size() > MAX_CLOSED_JOBS) {
                closedJobs.remove(closedJobs.iterator().next());
            }
            tasks.values().removeIf(task -> {
                if (task.job.equals(job)) {
                    fail(task, "the job has ended there", done);
                }
                return task.job.equals(job);
            });
        });
    }

    /** Drop everything, and end the hub's thread; the hub is not used any more. */
    void close() {
        quietly(done -> {
            isClosed = true;
            tasks.values().forEach(task -> fail(task, "the executor stops", done));
            tasks.clear();
        });
        end(keeper);
    }

    /** Interrupt *thread* and wait until it has ended, for some seconds at most. */
    static void end(Thread thread) {
        thread.interrupt();
        try {
            thread.join(END_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Return {bytes in memory, bytes ever written to files, tasks that started, requests that wait}. */
    long[] use() {
        lock.lock();
        try {
            long begun = tasks.values().stream().filter(task -> task.state != HubTask.State.ABSENT).count();
            long waiting = tasks.values().stream().mapToLong(task -> task.polls.size()).sum();
            return new long[] {held, spilled, begun, waiting};
        } finally {
            lock.unlock();
        }
    }
}
