package onager.rows;

import java.io.IOException;
import java.io.Serializable;

/** Where a stage's tasks put their rows, by bucket; travels with their plan. */
public interface ExchangeOutput extends Serializable {
    int buckets();

    /** Make what executions need, once and before any begins. */
    void prepare() throws IOException;

    /** Bytes of rows after which a frame is full. */
    int frameBytes();

    /** Return where the execution *nonce* of *partition* puts its frames. */
    ExchangeSink open(int partition, String nonce) throws IOException;

    /** Remove what the execution *nonce* has given, because nobody will ever name it; what fails goes with the job. */
    void discard(int partition, String nonce);
}
