package onager.kernel;

import java.util.HashMap;
import java.util.Map;

/** The threads that plan jobs, by job group, so that one can be woken from whatever it waits for. */
final class ControlThreads {
    private final Map threads = new HashMap();

    synchronized void enter(String group) {
        threads.put(group, Thread.currentThread());
    }

    synchronized void leave(String group) {
        threads.remove(group);
        Thread.interrupted(); // what came too late is not for whoever has this thread next
    }

    synchronized void interrupt(String group) {
        Thread thread = (Thread) threads.get(group);
        if (thread != null) {
            thread.interrupt();
        }
    }
}
