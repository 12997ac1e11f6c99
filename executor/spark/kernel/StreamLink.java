package onager.kernel;

import java.util.ArrayList;
import java.util.List;

/** One input of a stage: the stage that it reads, and its tasks that have not said yet which buckets they read. */
final class StreamLink {
    final int input;
    final boolean readsAll;
    /** The tasks of the reading stage that have not said what they read: until then they may need everything. */
    final List undecided = new ArrayList();

    StreamLink(int input, boolean readsAll) {
        this.input = input;
        this.readsAll = readsAll;
    }
}
