package onager.sort;

import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.AbstractIterator;

/** The rows of several sorted runs, merged or concatenated. */
final class MergedRows extends AbstractIterator<InternalRow> {
    private final LazilyGeneratedOrdering order;
    private final List<RunRows> all;
    /** The runs that have rows left; when merging, a heap by their current rows, where ties keep the order of the runs. */
    private final RunRows[] heap;
    private final int[] places;
    private int size = -1;
    private int opened = 0;
    /** Whether the first run's row was returned. */
    private boolean isTaken = false;

    /** *order*: the order of the rows to merge by; null to concatenate. */
    MergedRows(List<RunRows> runs, LazilyGeneratedOrdering order) {
        this.all = runs;
        this.order = order;
        this.heap = new RunRows[order == null ? 1 : runs.size()];
        this.places = new int[heap.length];
    }

    @Override
    public boolean hasNext() {
        if (size < 0) {
            size = 0;
            while (size < heap.length && opened < all.size()) {
                open();
            }
        } else if (isTaken) {
            isTaken = false;
            if (heap[0].advance()) {
                sink(0);
            } else {
                close();
            }
        }
        return size > 0;
    }

    @Override
    public InternalRow next() {
        if (isTaken || size < 0) {
            hasNext();
        }
        if (size == 0) {
            throw new NoSuchElementException();
        }
        isTaken = true;
        return heap[0].row();
    }

    /** Add the next run if it has rows. */
    private void open() {
        RunRows run = all.get(opened);
        if (run.advance()) {
            heap[size] = run;
            places[size] = opened;
            for (int i = size++; i > 0 && isBefore(i, (i - 1) / 2); i = (i - 1) / 2) {
                swap(i, (i - 1) / 2);
            }
        }
        opened++;
    }

    /** Remove the first run, which has ended. */
    private void close() {
        size--;
        if (order == null) {
            while (size == 0 && opened < all.size()) {
                open();
            }
        } else if (size > 0) {
            heap[0] = heap[size];
            places[0] = places[size];
            heap[size] = null;
            sink(0);
        }
    }

    private void sink(int from) {
        int i = from;
        for (int child = 2 * i + 1; child < size; child = 2 * i + 1) {
            if (child + 1 < size && isBefore(child + 1, child)) {
                child++;
            }
            if (!isBefore(child, i)) {
                return;
            }
            swap(i, child);
            i = child;
        }
    }

    private boolean isBefore(int a, int b) {
        int compared = order.compare(heap[a].row(), heap[b].row());
        return compared < 0 || compared == 0 && places[a] < places[b];
    }

    private void swap(int a, int b) {
        RunRows run = heap[a];
        heap[a] = heap[b];
        heap[b] = run;
        int place = places[a];
        places[a] = places[b];
        places[b] = place;
    }
}
