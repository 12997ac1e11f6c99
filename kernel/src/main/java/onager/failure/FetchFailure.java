package onager.failure;

/** An exchange file that a producer reported is missing or damaged; names the execution that wrote it. */
@SuppressWarnings("serial")
public final class FetchFailure extends RuntimeException {
    final int stage;
    final int partition;
    final String nonce;

    public FetchFailure(int stage, int partition, String nonce, String path, String why, Throwable cause) {
        super("exchange file " + path + " " + why, cause);
        this.stage = stage;
        this.partition = partition;
        this.nonce = nonce;
    }
}
