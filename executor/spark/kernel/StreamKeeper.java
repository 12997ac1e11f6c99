package onager.kernel;

/** Looks after a hub for as long as it is open: who waits in vain is answered. */
final class StreamKeeper extends Thread {
    private static final long TICK_MS = 250L;

    private final StreamHub hub;

    StreamKeeper(StreamHub hub) {
        super("onager-stream-keeper");
        setDaemon(true);
        this.hub = hub;
    }

    public void run() {
        while (true) {
            try {
                if (!hub.expire()) {
                    return;
                }
                Thread.sleep(TICK_MS);
            } catch (InterruptedException e) {
                return;
            } catch (Throwable e) {
                // memory is short, say; others wait for the next round
            }
        }
    }
}
