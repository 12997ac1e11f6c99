package onager.stream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import onager.failure.Failures;
import onager.rows.PackedFrame;

/**
 * What a hub says to one who asks for frames of a bucket.
 *
 * @param skippedFrames how many frames, and rows in them, come before these and are left out, because they were not wanted
 * @param rows at the end: how many rows the bucket had in all
 */
record StreamAnswer(Kind kind, int skippedFrames, long skippedRows, List<PackedFrame> frames, boolean isEnd, long rows, String why) {
    /** What kind of answer it is, in the order of the numbers that travel. */
    enum Kind {
        /** The task has not begun here. */
        ABSENT,
        /** Frames, perhaps none yet, and perhaps the last. */
        FRAMES,
        /** There is nothing to be had, now or later. */
        FAILED
    }

    static StreamAnswer absent() {
        return new StreamAnswer(Kind.ABSENT, 0, 0L, List.of(), false, 0L, "");
    }

    /** There is nothing yet. */
    static StreamAnswer nothing() {
        return new StreamAnswer(Kind.FRAMES, 0, 0L, List.of(), false, 0L, "");
    }

    static StreamAnswer failed(String why) {
        return new StreamAnswer(Kind.FAILED, 0, 0L, List.of(), false, 0L, why);
    }

    /** What a channel has, for now. */
    static StreamAnswer frames(HubChannel.Found found) {
        return new StreamAnswer(Kind.FRAMES, found.skippedFrames, found.skippedRows, found.frames, false, 0L, "");
    }

    /** The last that a channel has, which had *rows* rows in all. */
    static StreamAnswer last(HubChannel.Found found, long rows) {
        return new StreamAnswer(Kind.FRAMES, found.skippedFrames, found.skippedRows, found.frames, true, rows, "");
    }

    /** Whether frames of it lie in a file. */
    boolean hasToRead() {
        return !frames.stream().allMatch(PackedFrame::isInMemory);
    }

    /** Return it with all frames in memory; what went wrong on the way is the answer then. */
    StreamAnswer loaded() {
        var all = new ArrayList<PackedFrame>();
        try {
            for (PackedFrame frame : frames) {
                all.add(frame.loaded());
            }
        } catch (IOException e) {
            return failed("what was streamed cannot be read back: " + Failures.text(e));
        }
        return new StreamAnswer(kind, skippedFrames, skippedRows, all, isEnd, rows, why);
    }

    ByteBuffer encode() {
        byte[] text = why.getBytes(StandardCharsets.UTF_8);
        int size = 30 + text.length + frames.stream().mapToInt(frame -> PackedFrame.HEADER + frame.stored()).sum();
        ByteBuffer out = ByteBuffer.allocate(size);
        out.put((byte) kind.ordinal()).put((byte) (isEnd ? 1 : 0)).putLong(rows).putInt(text.length).put(text);
        out.putInt(skippedFrames).putLong(skippedRows).putInt(frames.size());
        frames.forEach(frame -> frame.put(out));
        return out.flip();
    }

    static StreamAnswer decode(ByteBuffer in) {
        Kind kind = Kind.values()[in.get()];
        boolean isEnd = in.get() == 1;
        long rows = in.getLong();
        var text = new byte[in.getInt()];
        in.get(text);
        int skippedFrames = in.getInt();
        long skippedRows = in.getLong();
        var frames = new ArrayList<PackedFrame>();
        for (int left = in.getInt(); left > 0; left--) {
            frames.add(PackedFrame.get(in));
        }
        return new StreamAnswer(kind, skippedFrames, skippedRows, frames, isEnd, rows, new String(text, StandardCharsets.UTF_8));
    }
}
