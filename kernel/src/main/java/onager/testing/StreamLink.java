package onager.testing;

import java.util.ArrayList;
import java.util.List;

/** One input of a stage, and the tasks of the stage that have not said yet which buckets of it they read. */
final class StreamLink {
    final int input;
    /** The tasks of the reading stage that have not said what they read: until then they may need everything. */
    final List<StreamTask> undecided = new ArrayList<>();

    StreamLink(int input) {
        this.input = input;
    }
}
