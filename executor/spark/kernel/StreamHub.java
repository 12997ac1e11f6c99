package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What the tasks of an executor stream, from when they give it until it was read.
 *
 * <p>A channel, of one execution for one bucket, holds a bounded number of bytes in memory, and so do all of them together. A
 * writer waits for room as long as there is a reader who may be expected to make some; then its frames go to a file. So memory
 * stays bounded, and yet every writer comes to its end whatever its readers do: nobody who waits here waits for ever.
 *
 * <p>Frames of a bucket with a single reader go when it has them, or says that it wants no more; all others are kept until the job is
 * closed. All methods may be called from any thread.
 */
public final class StreamHub {
    private static final Map HUBS = new ConcurrentHashMap();
    private static final int MOST_CLOSED_JOBS = 4096;
    /** How long what is said of tasks that never come is kept. */
    private static final long ABSENT_NS = 300L * 1000000000L;

    final String name;
    private final Store store;
    private final StreamLimits limits;
    private final ReentrantLock lock = new ReentrantLock();
    /** Signalled when memory has become free, or somebody has to look again. */
    private final Condition changed = lock.newCondition();
    private final Map tasks = new LinkedHashMap();
    private final Set closedJobs = new java.util.LinkedHashSet();
    private final StreamKeeper keeper;
    private long held = 0;
    private long spilled = 0;
    private boolean isClosed = false;

    /** *name*: that of no other hub in this process. */
    StreamHub(String name, Store store, StreamLimits limits) {
        this.name = name;
        this.store = store;
        this.limits = limits;
        HUBS.put(name, this);
        keeper = new StreamKeeper(this);
        keeper.start();
    }

    static StreamHub of(String name) {
        StreamHub hub = (StreamHub) HUBS.get(name);
        if (hub == null) {
            throw new java.io.UncheckedIOException(new IOException("the streams of this executor are closed"));
        }
        return hub;
    }

    StreamLimits limits() {
        return limits;
    }

    // ------------------------------------------------------------ writers

    /** Make what executions of a stage need, once and before any begins. */
    void prepare(String directory) throws IOException {
        store.prepare(directory);
    }

    /** Know that the execution *name* will begin here, however long it takes to make it ready: readers wait for it. */
    void expect(String name) {
        lock.lock();
        try {
            if (!isClosed && !closedJobs.contains(StreamRequest.jobOf(name))) {
                find(name).isExpected = true;
            }
        } finally {
            lock.unlock();
        }
    }

    /** The execution *name*, which was expected, will not begin. */
    void giveUp(String name, String why) {
        List done = new ArrayList();
        lock.lock();
        try {
            HubTask task = (HubTask) tasks.get(name);
            if (task != null && task.state == HubTask.ABSENT) {
                fail(task, why, done);
            }
        } finally {
            lock.unlock();
        }
        deliver(done);
    }

    /** Return where the execution *task* puts its frames; it begins now. */
    HubTask begin(String task, int buckets, String directory, String file) throws IOException {
        SpillFile spill = store.spill(directory, file);
        List done = new ArrayList();
        lock.lock();
        try {
            if (isClosed || closedJobs.contains(StreamRequest.jobOf(task))) {
                throw new org.apache.spark.TaskKilledException("the job has ended");
            }
            HubTask found = find(task);
            if (found.state != HubTask.ABSENT) {
                throw new BrokenStream("task " + task + " streamed here before", null);
            }
            found.begin(buckets, spill);
            look(found, done);
            return found;
        } finally {
            lock.unlock();
            deliver(done);
        }
    }

    /** Add a frame to a bucket, once there is room or it went to the file; false when nobody will read it. */
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
                add(task, channel, frame);
                return true;
            }
        } finally {
            List done = new ArrayList();
            look(task, done);
            lock.unlock();
            deliver(done);
        }
        PackedFrame written = spill(task, frame);
        List done = new ArrayList();
        lock.lock();
        try {
            if (!isWanted(task, channel)) {
                return false;
            }
            spilled += frame.stored;
            add(task, channel, written);
            look(task, done);
        } finally {
            lock.unlock();
        }
        deliver(done);
        return true;
    }

    private PackedFrame spill(HubTask task, PackedFrame frame) throws IOException {
        try {
            return frame.spilled(task.spill);
        } catch (java.nio.channels.ClosedChannelException e) {
            throw new BrokenStream("stopped: what " + task.name + " streams is wanted no more", e);
        } catch (IOException e) {
            throw ExchangeFailure.ofWrite(store.root, e);
        }
    }

    /** Return for how long to wait for room, at most; 0: there is some, -1: there is none that is worth a wait. */
    private long patience(HubTask task, HubChannel channel, PackedFrame frame) {
        boolean isAsked = channel.askedNs != 0L && !channel.isKept;
        boolean hasRoom = channel.held == 0L || channel.held + frame.stored <= limits.channelBytes;
        // A reader that has nothing is given something, however little memory there is: there are not many of them.
        if (hasRoom && (held + frame.stored <= limits.memoryBytes || held == 0L || isAsked && channel.held == 0L)) {
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
        if (task.state == HubTask.FAILED) {
            throw new BrokenStream("stopped: " + task.why, null);
        }
        return !channel.isClosed;
    }

    private void add(HubTask task, HubChannel channel, PackedFrame frame) {
        channel.add(frame);
        held += frame.isInMemory() ? frame.stored : 0;
    }

    /** All is given; *rows*: by bucket. */
    void finish(HubTask task, long[] rows) throws IOException {
        List done = new ArrayList();
        lock.lock();
        try {
            if (task.state == HubTask.FAILED) {
                throw new BrokenStream("stopped: " + task.why, null);
            }
            task.state = HubTask.FINISHED;
            task.rows = (long[]) rows.clone();
            look(task, done);
            task.closeFileIfRead();
        } finally {
            lock.unlock();
        }
        deliver(done);
    }

    /** What was given is not all: readers hear why. */
    void fail(HubTask task, String why) {
        List done = new ArrayList();
        lock.lock();
        try {
            fail(task, why, done);
        } finally {
            lock.unlock();
        }
        deliver(done);
    }

    private void fail(HubTask task, String why, List done) {
        if (task.state == HubTask.FAILED) {
            return;
        }
        task.state = HubTask.FAILED;
        task.why = why;
        held -= task.drop();
        changed.signalAll();
        look(task, done);
    }

    // ------------------------------------------------------------ readers

    /** Answer a request now or when there is something to say. */
    void ask(StreamRequest request, StreamReply reply) {
        HubTask.Poll poll = new HubTask.Poll(request, reply);
        List done = new ArrayList();
        lock.lock();
        try {
            if (isClosed || closedJobs.contains(StreamRequest.jobOf(request.task))) {
                done.add(new Object[] {poll, StreamAnswer.failed("the job has ended there"), null});
            } else {
                HubTask task = find(request.task);
                task.polls.add(poll);
                look(task, done);
            }
        } finally {
            lock.unlock();
        }
        deliver(done);
    }

    /** Nobody wants more of a bucket. */
    void drop(String name, int bucket) {
        lock.lock();
        try {
            if (isClosed || closedJobs.contains(StreamRequest.jobOf(name))) {
                return;
            }
            HubTask task = find(name);
            if (task.state == HubTask.ABSENT) {
                task.unwanted.add(Integer.valueOf(bucket));
            } else if (bucket < task.channels.length) {
                held -= task.channels[bucket].close();
                task.closeFileIfRead();
            }
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------ the lock is held

    private HubTask find(String name) {
        HubTask task = (HubTask) tasks.get(name);
        if (task == null) {
            task = new HubTask(name);
            tasks.put(name, task);
        }
        return task;
    }

    /** Take out the requests to a task that can be answered now, with their answers, into *done*. */
    private void look(HubTask task, List done) {
        long[] freed = new long[1];
        for (int i = task.polls.size() - 1; i >= 0; i--) {
            HubTask.Poll poll = (HubTask.Poll) task.polls.get(i);
            StreamAnswer answer = task.answer(poll.request, freed);
            if (answer != null) {
                task.polls.remove(i);
                task.reads += answer.hasToRead() ? 1 : 0;
                done.add(new Object[] {poll, answer, task});
            }
        }
        if (freed[0] > 0L || !done.isEmpty()) {
            held -= freed[0];
            changed.signalAll(); // that somebody has asked is news for who waits for room, too
        }
    }

    // ------------------------------------------------------------ the lock is not held

    private void deliver(List done) {
        for (int i = 0; i < done.size(); i++) {
            Object[] one = (Object[]) done.get(i);
            StreamReply reply = ((HubTask.Poll) one[0]).reply;
            StreamAnswer answer = (StreamAnswer) one[1];
            boolean hasToRead = answer.hasToRead();
            try {
                reply.answer(hasToRead ? answer.loaded() : answer);
            } catch (Throwable e) { // no memory for it, say: who waits must hear something, and this thread has other work
                reply.lose(e);
            }
            if (hasToRead) {
                endRead((HubTask) one[2]);
            }
        }
        for (int i = 0; i < done.size(); i++) {
            HubTask task = (HubTask) ((Object[]) done.get(i))[2];
            if (task != null) {
                lock.lock();
                try {
                    task.closeFileIfRead();
                } finally {
                    lock.unlock();
                }
            }
        }
    }

    private void endRead(HubTask task) {
        lock.lock();
        try {
            task.reads--;
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------ keeping order

    /** Answer those who have waited long enough, and forget tasks that never came; false once the hub is closed. */
    boolean expire() {
        List done = new ArrayList();
        lock.lock();
        try {
            if (isClosed) {
                return false;
            }
            expire(done);
        } finally {
            lock.unlock();
        }
        deliver(done);
        return true;
    }

    private void expire(List done) {
        long now = System.nanoTime();
        Iterator each = tasks.values().iterator();
        while (each.hasNext()) {
            HubTask task = (HubTask) each.next();
            for (int i = task.polls.size() - 1; i >= 0; i--) {
                HubTask.Poll poll = (HubTask.Poll) task.polls.get(i);
                if (poll.deadlineNs <= now) {
                    task.polls.remove(i);
                    StreamAnswer nothing = task.isAbsent() ? StreamAnswer.absent() : StreamAnswer.nothing();
                    done.add(new Object[] {poll, nothing, null});
                }
            }
            if (task.isAbsent() && task.polls.isEmpty() && (task.unwanted.isEmpty() || now - task.sinceNs > ABSENT_NS)) {
                each.remove();
            }
        }
    }

    /** Drop all that a job has streamed, and stop whoever waits; nothing of it will be taken any more. */
    void closeJob(String job) {
        List done = new ArrayList();
        lock.lock();
        try {
            closedJobs.add(job);
            if (closedJobs.size() > MOST_CLOSED_JOBS) {
                closedJobs.remove(closedJobs.iterator().next());
            }
            Iterator each = tasks.values().iterator();
            while (each.hasNext()) {
                HubTask task = (HubTask) each.next();
                if (task.job.equals(job)) {
                    fail(task, "the job has ended there", done);
                    each.remove();
                }
            }
        } finally {
            lock.unlock();
        }
        deliver(done);
    }

    /** Drop everything; nobody uses the hub any more. */
    void close() {
        HUBS.remove(name);
        List done = new ArrayList();
        lock.lock();
        try {
            isClosed = true;
            Iterator each = tasks.values().iterator();
            while (each.hasNext()) {
                fail((HubTask) each.next(), "the executor stops", done);
            }
            tasks.clear();
        } finally {
            lock.unlock();
        }
        deliver(done);
        keeper.interrupt();
    }

    /** Return {bytes in memory, bytes ever written to files, tasks that began, requests that wait}. */
    public long[] use() {
        lock.lock();
        try {
            long begun = 0;
            long waiting = 0;
            Iterator each = tasks.values().iterator();
            while (each.hasNext()) {
                HubTask task = (HubTask) each.next();
                begun += task.state == HubTask.ABSENT ? 0 : 1;
                waiting += task.polls.size();
            }
            return new long[] {held, spilled, begun, waiting};
        } finally {
            lock.unlock();
        }
    }
}
