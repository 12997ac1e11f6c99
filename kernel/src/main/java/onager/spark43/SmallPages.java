package onager.spark43;

import java.lang.reflect.Field;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.unsafe.memory.MemoryBlock;

/**
 * The memory of a task that has little of it. Spark's sorts take pages of the size that suits the process: one of them could take all that
 * such a task has, and let go of none of it while it is read. Here they take pages that suit the task; rows that are larger get theirs.
 */
final class SmallPages extends TaskMemoryManager {
    private static final Field PAGE_SIZE = Lookups.pageSize();

    SmallPages(MemoryManager memory, long attempt) {
        super(memory, attempt);
    }

    /** A sort asks for an array before its first page. */
    @Override
    public MemoryBlock allocatePage(long size, MemoryConsumer consumer) {
        try {
            if (PAGE_SIZE.getLong(consumer) > pageSizeBytes()) {
                PAGE_SIZE.setLong(consumer, pageSizeBytes());
            }
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
        return super.allocatePage(size, consumer);
    }
}
