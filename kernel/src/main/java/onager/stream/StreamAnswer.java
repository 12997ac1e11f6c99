package onager.stream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import onager.failure.Failures;
import onager.rows.PackedFrame;

/**
 * A hub's answer to a request for frames of a bucket.
 *
 * @param skippedFrames how many unwanted frames were skipped before these, as *skippedRows* for their rows
 * @param rows at the end: the number of rows of the bucket
 */
record StreamAnswer(Kind kind, int skippedFrames, long skippedRows, List<PackedFrame> frames, boolean isEnd, long rows, String why) {
    /** The kind of answer; the protocol sends the ordinal. */
    enum Kind {
        /** The task has not started here. */
        ABSENT,
        /** Frames, perhaps none yet, perhaps with the end. */
        FRAMES,
        /** The frames are not available, now or later. */
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

    /** Frames of a channel, without the end. */
    static StreamAnswer frames(HubChannel.Found found) {
        return new StreamAnswer(Kind.FRAMES, found.skippedFrames, found.skippedRows, found.frames, false, 0L, "");
    }

    /** The last frames of a channel, which had *rows* rows in total. */
    static StreamAnswer last(HubChannel.Found found, long rows) {
        return new StreamAnswer(Kind.FRAMES, found.skippedFrames, found.skippedRows, found.frames, true, rows, "");
    }

    /** Whether frames of it are in a file. */
    boolean hasToRead() {
        return !frames.stream().allMatch(PackedFrame::isInMemory);
    }

    /** Return the answer with all frames in memory, or a failure if they cannot be read. */
    StreamAnswer loaded() {
        var all = new ArrayList<PackedFrame>();
        try {
            for (PackedFrame frame : frames) {
                all.add(frame.loaded());
            }
        } catch (IOException e) {
            return failed("streamed frames cannot be read back: " + Failures.text(e));
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
