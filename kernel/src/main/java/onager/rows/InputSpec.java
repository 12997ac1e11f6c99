package onager.rows;

import java.io.Serializable;

/**
 * What is said of an input of a stage: files, whose producers have *nonces*, or, with *attempts*, a stream.
 *
 * @param readsAll whether each partition reads all of it
 * @param partitions how many it has as the reading stage was planned
 * @param producers the partitions of the producing stage; *nonces* and *rows* are in this order
 * @param bytes stored, of all files
 * @param attempts by partition of the producing stage, as *addresses*
 * @param alone whether nothing else of the job reads the producing stage
 * @param ordering the serialised order of sorted runs, of which partitions are ranges; else null
 */
public record InputSpec(int stage, String directory, boolean readsAll, int partitions, int[] producers, String[] nonces, long[] rows,
        long bytes, String job, int attempt, int[] attempts, String[] addresses, boolean alone, byte[] ordering) implements Serializable {
    public boolean isStream() {
        return attempts != null;
    }

    /** Return how many tasks wrote it. */
    public int writers() {
        return isStream() ? attempts.length : producers.length;
    }

    public String name() {
        return "stage " + stage;
    }
}
