package onager.kernel;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** The outcomes of all partitions of a query, made into one. */
final class Whole {
    private static final int END_MARK = 8;
    private static final int COPY = 1 << 20;
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
        long size = empty.length;
        boolean small = true;
        for (int i = 0; i < outcomes.length; i++) {
            size += number(outcomes[i], "bytes") - empty.length;
            small = small && outcomes[i].inline != null;
        }
        fields.put("bytes", Long.valueOf(size));
        if (small && size <= WriteResult.INLINE) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            out.write(empty, 0, head);
            for (int i = 0; i < outcomes.length; i++) {
                out.write(outcomes[i].inline, head, outcomes[i].inline.length - empty.length);
            }
            out.write(empty, head, END_MARK);
            fields.put("inline", Boolean.TRUE);
            return new Outcome(0, fields, out.toByteArray());
        }
        Store.Pending file = store.create(directory + "/0-" + nonce + ".arrow");
        try {
            file.write(empty, 0, head);
            for (int i = 0; i < outcomes.length; i++) {
                if (outcomes[i].inline != null) {
                    file.write(outcomes[i].inline, head, outcomes[i].inline.length - empty.length);
                } else {
                    move(store, directory + "/" + i + "-" + outcomes[i].fields.get("nonce") + ".arrow", file, head);
                }
            }
            file.write(empty, head, END_MARK);
            file.commit();
        } catch (Throwable e) {
            file.abort();
            throw e;
        }
        return new Outcome(0, fields, null);
    }

    private static void move(Store store, String name, Store.Pending file, int head) throws IOException {
        Store.Source part = store.open(name);
        byte[] buffer = new byte[COPY];
        long end = part.size - END_MARK;
        for (long at = head; at < end; at += buffer.length) {
            int n = (int) Math.min((long) buffer.length, end - at);
            part.read(at, buffer, n);
            file.write(buffer, 0, n);
        }
        part.close();
        store.delete(name);
    }
}
