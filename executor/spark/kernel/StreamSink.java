package onager.kernel;

import java.io.IOException;

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

    public boolean put(int bucket, Frame frame) throws IOException, InterruptedException {
        boolean isTaken = exchange.put(outputs[bucket], frame);
        bytes += isTaken ? frame.size : 0;
        return isTaken;
    }

    public void finish(long[] rows) throws IOException {
        exchange.finish(outputs, rows);
    }

    public void abort(Throwable why) {
        exchange.fail(task, why);
    }

    public long bytes() {
        return bytes;
    }

    public String toString() {
        return "output of " + task;
    }
}
