package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Keys of a sorted run at even distances, which double when there are too many. What is taken depends on the places of rows
 * alone, so a run that is made again gives the same keys, whichever rows of the same key come first.
 *
 * <p>They travel in a bucket of their own: a header (run, distance, rows of the run), then the keys.
 */
final class Samples {
    private final int most;
    private List keys = new ArrayList();
    private long distance = 1;
    private long next = 0;
    private long rows = 0;

    /** *most*: an even number of keys. */
    Samples(int most) {
        this.most = most;
    }

    /** Take note of the run's next row. */
    void add(UnsafeRow row, UnsafeProjection key) {
        if (rows == next) {
            if (keys.size() == most) {
                halve();
            }
            keys.add(key.apply(row).copy());
            next = rows + distance;
        }
        rows++;
    }

    private void halve() {
        List kept = new ArrayList(most);
        for (int i = 0; i < keys.size(); i += 2) {
            kept.add(keys.get(i));
        }
        keys = kept;
        distance *= 2;
    }

    /** Give what was taken of run *run* to *bucket*; nothing when the run has no rows. */
    void write(FrameWriter writer, int bucket, int run) throws IOException, InterruptedException {
        if (rows == 0) {
            return;
        }
        UnsafeRow header = new UnsafeRow(3);
        int bytes = UnsafeRow.calculateBitSetWidthInBytes(3) + 3 * 8;
        header.pointTo(new byte[bytes], bytes);
        header.setLong(0, (long) run);
        header.setLong(1, distance);
        header.setLong(2, rows);
        writer.add(bucket, header);
        for (int i = 0; i < keys.size(); i++) {
            writer.add(bucket, (UnsafeRow) keys.get(i));
        }
    }

    /** What was taken of one run. */
    static final class OfRun {
        final int run;
        final long distance;
        final long rows;
        final UnsafeRow[] keys;

        OfRun(UnsafeRow header) {
            run = (int) header.getLong(0);
            distance = header.getLong(1);
            rows = header.getLong(2);
            keys = new UnsafeRow[(int) ((rows + distance - 1) / distance)];
        }

        /** How many rows the key at *i* stands for. */
        long weight(int i) {
            return Math.min(distance, rows - i * distance);
        }
    }

    /** Return what was taken of each run that has rows, as an `OfRun`; *fields*: columns of a key. */
    static List read(ExchangeSource source, int fields) throws IOException, InterruptedException {
        List all = new ArrayList();
        FrameCursor at = new FrameCursor();
        OfRun run = null;
        int read = 0;
        for (Frame frame = source.next(); frame != null; frame = source.next()) {
            at.start(frame);
            while (at.hasNext()) {
                if (run == null || read == run.keys.length) {
                    UnsafeRow header = new UnsafeRow(3);
                    at.next(header);
                    run = new OfRun(header);
                    read = 0;
                    all.add(run);
                } else {
                    UnsafeRow key = new UnsafeRow(fields);
                    at.next(key);
                    run.keys[read++] = key.copy();
                }
            }
        }
        if (run != null && read < run.keys.length) {
            throw new IOException("the keys of run " + run.run + " end after " + read + " of " + run.keys.length);
        }
        return all;
    }
}
