package onager.kernel;

/** An exchange file that a producer reported is missing or damaged; names the execution that wrote it. */
public final class FetchFailure extends RuntimeException {
    public final int stage;
    public final int partition;
    public final String nonce;

    public FetchFailure(int stage, int partition, String nonce, String path, String why, Throwable cause) {
        super("exchange file " + path + " " + why, cause);
        this.stage = stage;
        this.partition = partition;
        this.nonce = nonce;
    }
}
