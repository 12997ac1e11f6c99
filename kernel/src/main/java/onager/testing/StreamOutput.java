package onager.testing;

import onager.rows.ExchangeOutput;
import onager.rows.ExchangeSink;

/** The output of a stage's tasks over the streaming exchange of their process. */
@SuppressWarnings("serial")
final class StreamOutput implements ExchangeOutput {
    private final String run;
    private final int stage;

    StreamOutput(String run, int stage) {
        this.run = run;
        this.stage = stage;
    }

    @Override
    public int buckets() {
        return StreamInput.exchange(run).buckets(stage);
    }

    @Override
    public int frameBytes() {
        return StreamInput.exchange(run).frameBytes();
    }

    @Override
    public ExchangeSink open(int partition, String nonce) {
        return Pipeline.interposed(run).sink(StreamInput.exchange(run).sink(stage, partition), stage, partition);
    }

    @Override
    public void prepare() {}

    @Override
    public void discard(int partition, String nonce) {
        // what was streamed is gone with the run
    }
}
