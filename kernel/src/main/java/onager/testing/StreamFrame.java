package onager.testing;

import java.io.IOException;
import onager.rows.Frame;
import onager.store.SpillFile;

/** A frame in a channel: in memory, or in the file where frames go for which there is no memory. */
final class StreamFrame {
    final int size;
    final int rows;
    private final int rowSize;
    private Frame held;
    private final SpillFile file;
    private final long position;

    private StreamFrame(Frame frame, Frame held, SpillFile file, long position) {
        this.size = frame.size();
        this.rows = frame.rows();
        this.rowSize = frame.rowSize();
        this.held = held;
        this.file = file;
        this.position = position;
    }

    static StreamFrame inMemory(Frame frame) {
        return new StreamFrame(frame, frame.copy(), null, 0);
    }

    static StreamFrame spilled(Frame frame, SpillFile file) throws IOException {
        return new StreamFrame(frame, null, file, file.write(frame.bytes(), frame.size()));
    }

    boolean isInMemory() {
        return file == null;
    }

    /** Return the rows; *shared*: others read them, too, and must not see what this reader might do to them. */
    Frame open(boolean shared) throws IOException {
        if (file == null) {
            return shared ? held.copy() : held;
        }
        return new Frame(file.read(position, size), size, rows, rowSize);
    }
}
