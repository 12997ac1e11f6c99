package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** The outcomes of all partitions of a query, made into one. */
final class Whole {
    private static final int END_MARK = 8;
    private static final long MOST_HELD = 64L << 20;
    private static final String[] SUMS = {"rows", "bytes", "bytes_in", "spill_bytes"};

    private Whole() {}

    static final class Collector extends AbstractFunction2 {
        private final Outcome[] outcomes;

        Collector(Outcome[] outcomes) {
            this.outcomes = outcomes;
        }

        public Object apply(Object index, Object outcome) {
            outcomes[((Outcome) outcome).partition] = (Outcome) outcome;
            return BoxedUnit.UNIT;
        }
    }

    /**
     * How much of the result each of *partitions* tasks may bring along: together no more than a part of what Spark takes of all of them,
     * and of what the driver can hold. The rest is in files until it is made one.
     */
    static int inline(int partitions, SparkContext sc) {
        long most = sc.getConf().getSizeAsBytes("spark.driver.maxResultSize", "1g");
        long all = most <= 0L ? MOST_HELD : Math.min(MOST_HELD, most / 4L);
        return (int) Math.min((long) WriteResult.INLINE, all / Math.max(1, partitions));
    }

    private static Map sums(Outcome[] outcomes) {
        Map fields = new LinkedHashMap();
        for (int s = 0; s < SUMS.length; s++) {
            long sum = 0;
            for (int i = 0; i < outcomes.length; i++) {
                sum += number(outcomes[i], SUMS[s]);
            }
            fields.put(SUMS[s], Long.valueOf(sum));
        }
        long peak = 0;
        for (int i = 0; i < outcomes.length; i++) {
            peak = Math.max(peak, number(outcomes[i], "peak_memory_bytes"));
        }
        fields.put("peak_memory_bytes", Long.valueOf(peak));
        fields.put("inline", Boolean.FALSE);
        fields.put("checksum", "");
        fields.put("files", new String[0]);
        return fields;
    }

    private static long number(Outcome o, String field) {
        return ((Number) o.fields.get(field)).longValue();
    }

    /** The staged files that hold rows, or one without when none does. */
    static Outcome sink(Outcome[] outcomes) {
        Map fields = sums(outcomes);
        List files = new ArrayList();
        List empty = new ArrayList();
        for (int i = 0; i < outcomes.length; i++) {
            (number(outcomes[i], "rows") > 0 ? files : empty).addAll(java.util.Arrays.asList((String[]) outcomes[i].fields.get("files")));
        }
        fields.put("files", files.isEmpty() ? empty : files);
        return new Outcome(0, fields, null);
    }

    /** One stream of the batches of all partitions, in order. *empty* is the stream without any. */
    static Outcome result(Outcome[] outcomes, Store store, String directory, String nonce, byte[] empty) throws IOException {
        Map fields = sums(outcomes);
        int head = empty.length - END_MARK;
        Task.Written done = new Task.Written();
        ResultFile out = new ResultFile(store, directory + "/0-" + nonce + ".arrow", null, WriteResult.INLINE);
        try {
            out.write(empty, 0, head);
            out.endPiece();
            for (int i = 0; i < outcomes.length; i++) {
                String checksum = (String) outcomes[i].fields.get("checksum");
                if (outcomes[i].inline != null) {
                    out.append(new ResultFile.Held(outcomes[i].inline), checksum);
                } else {
                    String name = directory + "/" + i + "-" + outcomes[i].fields.get("nonce") + ".arrow";
                    out.append(store.open(name), checksum);
                    store.delete(name);
                }
            }
            out.write(empty, head, END_MARK);
            out.endPiece();
            out.finish(done);
        } catch (Throwable e) {
            out.abort();
            throw e;
        }
        fields.put("bytes", Long.valueOf(done.bytes));
        fields.put("checksum", done.checksum);
        fields.put("inline", Boolean.valueOf(done.isInline));
        return new Outcome(0, fields, done.inline);
    }
}
