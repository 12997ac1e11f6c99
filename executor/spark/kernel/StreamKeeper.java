package onager.kernel;

import java.util.Iterator;

/** Looks after a hub for as long as it is open: who waits in vain is answered, and jobs whose directories have gone are closed. */
final class StreamKeeper extends Thread {
    private static final long TICK_MS = 250L;
    private static final long LOOK_NS = 5000000000L;

    private final StreamHub hub;
    private final Store store;
    private long lookedNs = System.nanoTime();

    StreamKeeper(StreamHub hub, Store store) {
        super("onager-stream-keeper");
        setDaemon(true);
        this.hub = hub;
        this.store = store;
    }

    public void run() {
        while (true) {
            try {
                if (!hub.expire()) {
                    return;
                }
                closeGone();
                Thread.sleep(TICK_MS);
            } catch (InterruptedException e) {
                return;
            } catch (Throwable e) {
                // memory is short, say; others wait for the next round
            }
        }
    }

    /** Close the jobs whose directories somebody has removed: they have ended. */
    private void closeGone() {
        if (System.nanoTime() - lookedNs < LOOK_NS) {
            return;
        }
        lookedNs = System.nanoTime();
        Iterator each = hub.directories().iterator();
        while (each.hasNext()) {
            String[] one = ((String) each.next()).split("\t");
            if (store.isGone(one[1])) {
                hub.closeJob(one[0]);
            }
        }
    }
}
