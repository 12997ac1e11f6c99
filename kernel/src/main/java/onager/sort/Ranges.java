package onager.sort;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Divides sorted runs into ranges of about equal size: range i has the rows whose key is above bound i - 1 and not above bound i. Rows
 * with the same key are in the same range. The bounds are computed from the sampled keys of the runs.
 */
@SuppressWarnings("serial")
final class Ranges implements Serializable {
    final KeyOrder order;
    final int count;
    /** Ascending and distinct; fewer than ranges if there are too few distinct keys. */
    private final UnsafeRow[] bounds;
    /** By run, then by bound: the position before which no row is above the bound. */
    private final long[][] below;
    /** By run, then by bound: the position from which on all rows are above the bound. */
    private final long[][] above;

    /** *samples*: the sampled keys of each of *runs* runs that has rows. */
    Ranges(KeyOrder order, int count, int runs, List<Samples.OfRun> samples) {
        this.order = order;
        this.count = count;
        this.bounds = bounds(samples);
        this.below = new long[runs][];
        this.above = new long[runs][];
        samples.forEach(this::locate);
    }

    /** A sampled key and the number of rows that it stands for. */
    private record Candidate(UnsafeRow key, long weight) {}

    private UnsafeRow[] bounds(List<Samples.OfRun> samples) {
        var all = new ArrayList<Candidate>();
        long left = 0;
        for (var run : samples) {
            left += run.rows();
            for (int k = 0; k < run.keys().length; k++) {
                all.add(new Candidate(run.keys()[k], run.weight(k)));
            }
        }
        all.sort((a, b) -> order.compare(a.key, b.key));
        var made = new ArrayList<UnsafeRow>();
        long held = 0;
        for (int i = 0; i < all.size() && made.size() < count - 1; i++) {
            Candidate c = all.get(i);
            held += c.weight;
            boolean isLastOfKey = i + 1 == all.size() || order.compare(c.key, all.get(i + 1).key) != 0;
            if (isLastOfKey && held * (count - made.size()) >= left) {
                made.add(c.key);
                left -= held; // the other ranges share the rest equally, however much this one took
                held = 0;
            }
        }
        return made.toArray(new UnsafeRow[0]);
    }

    private void locate(Samples.OfRun run) {
        var belowOf = below[run.run()] = new long[bounds.length];
        var aboveOf = above[run.run()] = new long[bounds.length];
        int k = 0;
        for (int b = 0; b < bounds.length; b++) {
            while (k < run.keys().length && order.compare(run.keys()[k], bounds[b]) <= 0) {
                k++;
            }
            belowOf[b] = k == 0 ? 0L : (k - 1) * run.distance() + 1;
            aboveOf[b] = k == run.keys().length ? run.rows() : k * run.distance();
        }
    }

    /** The exclusive lower bound of range *i*, or null. */
    UnsafeRow over(int i) {
        return i == 0 || i > bounds.length ? null : bounds[i - 1];
    }

    /** The inclusive upper bound of range *i*, or null. */
    UnsafeRow upTo(int i) {
        return i < bounds.length ? bounds[i] : null;
    }

    /** Whether *run* may have rows in range *i*. */
    boolean isIn(int run, int i) {
        return i <= bounds.length && below[run] != null && first(run, i) < end(run, i);
    }

    /** The position in *run* before which no row is in range *i*. */
    long first(int run, int i) {
        return i == 0 ? 0L : below[run][i - 1];
    }

    /** The position in *run* from which on no row is in range *i*. */
    long end(int run, int i) {
        return i < bounds.length ? above[run][i] : Long.MAX_VALUE;
    }
}
