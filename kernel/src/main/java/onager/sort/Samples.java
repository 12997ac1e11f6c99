package onager.sort;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import onager.rows.ExchangeSource;
import onager.rows.Frame;
import onager.rows.FrameCursor;
import onager.rows.FrameWriter;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Evenly spaced keys of a sorted run; the distance doubles when there are too many. Samples depend only on the positions of rows, so a
 * repeated run gives the same keys, in whatever order rows with the same key come.
 *
 * <p>They have their own bucket: a header (run, distance, rows of the run), then the keys.
 */
public final class Samples {
    private final int most;
    private List<UnsafeRow> keys = new ArrayList<>();
    private long distance = 1;
    private long next = 0;
    private long rows = 0;

    /** *most*: the maximum number of keys; even. */
    public Samples(int most) {
        this.most = most;
    }

    /** Count the run's next row, and sample its key if it is due. */
    public void add(UnsafeRow row, UnsafeProjection key) {
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
        var kept = new ArrayList<UnsafeRow>(most);
        for (int i = 0; i < keys.size(); i += 2) {
            kept.add(keys.get(i));
        }
        keys = kept;
        distance *= 2;
    }

    /** Write the samples of run *run* to *bucket*; nothing if the run has no rows. */
    public void write(FrameWriter writer, int bucket, int run) throws IOException, InterruptedException {
        if (rows == 0) {
            return;
        }
        var header = new UnsafeRow(3);
        int bytes = UnsafeRow.calculateBitSetWidthInBytes(3) + 3 * 8;
        header.pointTo(new byte[bytes], bytes);
        header.setLong(0, run);
        header.setLong(1, distance);
        header.setLong(2, rows);
        writer.add(bucket, header);
        for (UnsafeRow key : keys) {
            writer.add(bucket, key);
        }
    }

    /** The samples of one run. */
    record OfRun(int run, long distance, long rows, UnsafeRow[] keys) {
        OfRun(UnsafeRow header) {
            this((int) header.getLong(0), header.getLong(1), header.getLong(2),
                    new UnsafeRow[(int) ((header.getLong(2) + header.getLong(1) - 1) / header.getLong(1))]);
        }

        /** The number of rows that the key at *i* represents. */
        long weight(int i) {
            return Math.min(distance, rows - i * distance);
        }
    }

    /** Return the samples of each run that has rows; *fields*: the number of columns of a key. */
    static List<OfRun> read(ExchangeSource source, int fields) throws IOException, InterruptedException {
        var all = new ArrayList<OfRun>();
        var at = new FrameCursor();
        OfRun run = null;
        int read = 0;
        for (Frame frame = source.next(); frame != null; frame = source.next()) {
            at.start(frame);
            while (at.hasNext()) {
                if (run == null || read == run.keys.length) {
                    var header = new UnsafeRow(3);
                    at.next(header);
                    run = new OfRun(header);
                    read = 0;
                    all.add(run);
                } else {
                    var key = new UnsafeRow(fields);
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
