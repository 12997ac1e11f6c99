package onager.rows;

import java.io.IOException;
import java.io.Serializable;

/** Where a stage's tasks write their rows, by bucket; serialised with their plan. */
public interface ExchangeOutput extends Serializable {
    int buckets();

    /** Prepare for executions; called once, before any starts. */
    void prepare() throws IOException;

    /** Return the size in bytes at which a frame is full. */
    int frameBytes();

    /** Return the sink for the frames of the execution *nonce* of *partition*. */
    ExchangeSink open(int partition, String nonce) throws IOException;

    /** Remove the output of the execution *nonce*, which no report names; files that cannot be removed go with the job. */
    void discard(int partition, String nonce);
}
