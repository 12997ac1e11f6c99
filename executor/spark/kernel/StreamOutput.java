package onager.kernel;

/** The output of a stage's tasks over the streaming exchange of their process. */
final class StreamOutput implements ExchangeOutput {
    private final String run;
    private final int stage;

    StreamOutput(String run, int stage) {
        this.run = run;
        this.stage = stage;
    }

    public int buckets() {
        return StreamInput.exchange(run).buckets(stage);
    }

    public int frameBytes() {
        return StreamInput.exchange(run).frameBytes();
    }

    public ExchangeSink open(int partition, String nonce) {
        return Pipeline.interposed(run).sink(StreamInput.exchange(run).sink(stage, partition), stage, partition);
    }

    public void prepare() {}

    public void discard(int partition, String nonce) {
        // what was streamed is gone with the run
    }
}
