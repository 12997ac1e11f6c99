package onager.kernel;

import java.io.Serializable;
import java.util.Map;

/** What became of one partition: plain values by name, and a small result. Travels from the task to the driver. */
public final class Outcome implements Serializable {
    public final int partition;
    public final Map fields;
    public final byte[] inline;

    public Outcome(int partition, Map fields, byte[] inline) {
        this.partition = partition;
        this.fields = fields;
        this.inline = inline;
    }
}
