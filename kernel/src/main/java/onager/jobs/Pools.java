package onager.jobs;

import java.util.BitSet;

/** Spark's scheduler pools, one for each run in progress. Spark never removes a pool, so they are reused. */
final class Pools {
    private static final String PREFIX = "onager-";

    private final BitSet taken = new BitSet();

    synchronized String take() {
        int free = taken.nextClearBit(0);
        taken.set(free);
        return PREFIX + free;
    }

    synchronized void give(String pool) {
        taken.clear(Integer.parseInt(pool.substring(PREFIX.length())));
    }
}
