package onager.testing;

import java.io.IOException;
import java.util.List;
import onager.rows.ExchangeSource;
import onager.rows.Frame;

/** Reads channels one after another. */
final class StreamSource implements ExchangeSource {
    private final StreamExchange exchange;
    private final StreamTask task;
    private final List<StreamChannel.Cursor> cursors;
    private int next = 0;

    StreamSource(StreamExchange exchange, StreamTask task, List<StreamChannel.Cursor> cursors) {
        this.exchange = exchange;
        this.task = task;
        this.cursors = cursors;
    }

    @Override
    public Frame next() throws IOException, InterruptedException {
        while (next < cursors.size()) {
            Frame frame = exchange.take(task, cursors.get(next));
            if (frame != null) {
                return frame;
            }
            next++;
        }
        return null;
    }

    @Override
    public void close() {
        next = cursors.size();
        exchange.close(cursors);
    }
}
