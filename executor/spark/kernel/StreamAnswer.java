package onager.kernel;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What a hub says to one who asks for frames of a bucket. */
final class StreamAnswer {
    /** The task has not begun here. */
    static final byte ABSENT = 0;
    /** Frames, perhaps none yet, and perhaps the last. */
    static final byte FRAMES = 1;
    /** There is nothing to be had, now or later. */
    static final byte FAILED = 2;

    final byte kind;
    /** How many frames, and rows in them, come before these and are left out, because they were not wanted. */
    final int skippedFrames;
    final long skippedRows;
    final List frames;
    final boolean isEnd;
    /** At the end: how many rows the bucket had in all. */
    final long rows;
    final String why;

    private StreamAnswer(byte kind, int skippedFrames, long skippedRows, List frames, boolean isEnd, long rows, String why) {
        this.kind = kind;
        this.skippedFrames = skippedFrames;
        this.skippedRows = skippedRows;
        this.frames = frames;
        this.isEnd = isEnd;
        this.rows = rows;
        this.why = why;
    }

    static StreamAnswer absent() {
        return new StreamAnswer(ABSENT, 0, 0L, Collections.EMPTY_LIST, false, 0L, "");
    }

    /** What a channel has, for now. */
    static StreamAnswer frames(HubChannel.Found found) {
        return new StreamAnswer(FRAMES, found.skippedFrames, found.skippedRows, found.frames, false, 0L, "");
    }

    /** The last that a channel has, which had *rows* rows in all. */
    static StreamAnswer last(HubChannel.Found found, long rows) {
        return new StreamAnswer(FRAMES, found.skippedFrames, found.skippedRows, found.frames, true, rows, "");
    }

    /** There is nothing yet. */
    static StreamAnswer nothing() {
        return new StreamAnswer(FRAMES, 0, 0L, Collections.EMPTY_LIST, false, 0L, "");
    }

    /** Whether frames of it lie in a file. */
    boolean hasToRead() {
        for (int i = 0; i < frames.size(); i++) {
            if (!((PackedFrame) frames.get(i)).isInMemory()) {
                return true;
            }
        }
        return false;
    }

    /** Return it with all frames in memory; what went wrong on the way is the answer then. */
    StreamAnswer loaded() {
        List all = new ArrayList();
        try {
            for (int i = 0; i < frames.size(); i++) {
                all.add(((PackedFrame) frames.get(i)).loaded());
            }
        } catch (java.io.IOException e) {
            return failed("what was streamed cannot be read back: " + Failures.text(e));
        }
        return new StreamAnswer(kind, skippedFrames, skippedRows, all, isEnd, rows, why);
    }

    static StreamAnswer failed(String why) {
        return new StreamAnswer(FAILED, 0, 0L, Collections.EMPTY_LIST, false, 0L, why);
    }

    ByteBuffer encode() {
        byte[] text = why.getBytes(StandardCharsets.UTF_8);
        int size = 30 + text.length;
        for (int i = 0; i < frames.size(); i++) {
            size += PackedFrame.HEADER + ((PackedFrame) frames.get(i)).stored;
        }
        ByteBuffer out = ByteBuffer.allocate(size);
        out.put(kind).put((byte) (isEnd ? 1 : 0)).putLong(rows).putInt(text.length).put(text);
        out.putInt(skippedFrames).putLong(skippedRows).putInt(frames.size());
        for (int i = 0; i < frames.size(); i++) {
            ((PackedFrame) frames.get(i)).put(out);
        }
        out.flip();
        return out;
    }

    static StreamAnswer decode(ByteBuffer in) {
        byte kind = in.get();
        boolean isEnd = in.get() == 1;
        long rows = in.getLong();
        byte[] text = new byte[in.getInt()];
        in.get(text);
        int skippedFrames = in.getInt();
        long skippedRows = in.getLong();
        List frames = new ArrayList();
        for (int left = in.getInt(); left > 0; left--) {
            frames.add(PackedFrame.get(in));
        }
        return new StreamAnswer(kind, skippedFrames, skippedRows, frames, isEnd, rows, new String(text, StandardCharsets.UTF_8));
    }
}
