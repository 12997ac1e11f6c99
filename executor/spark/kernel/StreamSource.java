package onager.kernel;

import java.io.IOException;
import java.util.List;

/** Reads channels one after another. */
final class StreamSource implements ExchangeSource {
    private final StreamExchange exchange;
    private final StreamTask task;
    private final List cursors;
    private int next = 0;

    StreamSource(StreamExchange exchange, StreamTask task, List cursors) {
        this.exchange = exchange;
        this.task = task;
        this.cursors = cursors;
    }

    public Frame next() throws IOException, InterruptedException {
        while (next < cursors.size()) {
            Frame frame = exchange.take(task, (StreamChannel.Cursor) cursors.get(next));
            if (frame != null) {
                return frame;
            }
            next++;
        }
        return null;
    }

    public void close() {
        next = cursors.size();
        exchange.close(cursors);
    }
}
