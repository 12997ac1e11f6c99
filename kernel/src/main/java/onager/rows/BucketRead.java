package onager.rows;

import java.io.Serializable;

/**
 * What a task reads of an input in row files: buckets *first* to *end* (exclusive; all from *first* on if it is negative), and of the stage
 * *split* only what the producers from *firstProducer* to *endProducer* (exclusive) wrote.
 */
public record BucketRead(int first, int end, int split, int firstProducer, int endProducer) implements Serializable {
    static BucketRead bucket(int bucket, int firstProducer, int endProducer) {
        return new BucketRead(bucket, bucket + 1, 0, firstProducer, endProducer);
    }

    static BucketRead all(int firstProducer, int endProducer) {
        return new BucketRead(0, -1, 0, firstProducer, endProducer);
    }

    /** Return what is read of *stage*, which has *producers*: all of these unless it is the one that is split. */
    BucketRead of(int stage, int producers) {
        return stage == split ? this : new BucketRead(first, end, 0, 0, producers);
    }

    /** Return the end of the buckets to read of files that have *buckets*. */
    int end(int buckets) {
        return end < 0 ? buckets : end;
    }

    boolean hasProducer(int producer) {
        return producer >= firstProducer && producer < endProducer;
    }
}
