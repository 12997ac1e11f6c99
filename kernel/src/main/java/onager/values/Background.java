package onager.values;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Work that nobody waits for. */
public final class Background {
    private Background() {}

    /** Return a thread called *name* that does one thing after another, and keeps no process alive. */
    public static ExecutorService thread(String name) {
        return Executors.newSingleThreadExecutor(work -> {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        });
    }
}
