package onager.rows;

import java.io.Serializable;

/**
 * An input of a stage: files, whose producers have *nonces*, or, with *attempts*, streams.
 *
 * @param readsAll whether each partition reads all of it
 * @param partitions the number of partitions with which the reading stage was planned
 * @param producers the partitions of the producing stage; *nonces* and *rows* are in this order
 * @param bytes the stored size of all files
 * @param attempts the task attempts by partition of the producing stage, like *addresses*
 * @param soleReader whether this is the only input that reads the producing stage
 * @param ordering the serialised ordering of sorted runs, whose ranges are the partitions; else null
 * @param byProducer whether partition i is what the i-th producer gave
 * @param fused the index of the fused stage that computes it, instead of all else; null: it is read
 */
public record InputSpec(int stage, String directory, boolean readsAll, int partitions, int[] producers, String[] nonces, long[] rows,
        long bytes, String job, int attempt, int[] attempts, String[] addresses, boolean soleReader, byte[] ordering,
        boolean byProducer, Integer fused) implements Serializable {
    public boolean isStream() {
        return attempts != null;
    }

    /** Return the number of tasks that wrote it. */
    public int writers() {
        return isStream() ? attempts.length : producers.length;
    }

    public String name() {
        return "stage " + stage;
    }
}
