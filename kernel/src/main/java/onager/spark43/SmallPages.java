package onager.spark43;

import java.lang.reflect.Field;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.unsafe.memory.MemoryBlock;

/**
 * The memory manager of a task that has little memory. Spark's sorts use pages that suit the process: a single page could take all memory
 * of such a task, and is not released while it is read. Here pages suit the task; larger rows get pages of their size.
 */
final class SmallPages extends TaskMemoryManager {
    private static final Field PAGE_SIZE = Lookups.pageSize();

    SmallPages(MemoryManager memory, long attempt) {
        super(memory, attempt);
    }

    /** Also sets the page size, since a sort allocates an array before its first page. */
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
