package onager.testing;

import java.io.IOException;
import onager.rows.ExchangeSink;
import onager.rows.Frame;

/** Puts a task's frames into its channels. */
final class StreamSink implements ExchangeSink {
    private final StreamExchange exchange;
    private final StreamTask task;
    private final StreamChannel[] outputs;
    private long bytes = 0;

    StreamSink(StreamExchange exchange, StreamTask task, StreamChannel[] outputs) {
        this.exchange = exchange;
        this.task = task;
        this.outputs = outputs;
    }

    @Override
    public boolean put(int bucket, Frame frame) throws IOException, InterruptedException {
        boolean isTaken = exchange.put(outputs[bucket], frame);
        bytes += isTaken ? frame.size() : 0;
        return isTaken;
    }

    @Override
    public void finish(long[] rows) throws IOException {
        exchange.finish(outputs, rows);
    }

    @Override
    public void abort(Throwable why) {
        exchange.fail(task, why);
    }

    @Override
    public long bytes() {
        return bytes;
    }

    @Override
    public String toString() {
        return "output of " + task;
    }
}
