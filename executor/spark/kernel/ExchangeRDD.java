package onager.kernel;

import java.io.IOException;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDDPartition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag$;

/**
 * The output of a stage as rows, whichever exchange carries it. Like Spark's own shuffle reader it hands out one row
 * object again and again.
 */
public final class ExchangeRDD extends RDD {
    final ExchangeInput input;
    private final int fields;

    public ExchangeRDD(SparkContext sc, ExchangeInput input, int fields) {
        super(sc, (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
        this.input = input;
        this.fields = fields;
    }

    public Partition[] getPartitions() {
        Partition[] all = new Partition[input.partitions()];
        for (int i = 0; i < all.length; i++) {
            all[i] = new ShuffledRDDPartition(i);
        }
        return all;
    }

    public scala.collection.Iterator compute(Partition split, TaskContext context) {
        return new Rows(input.open(split.index(), context), fields, context);
    }

    private static final class Rows extends AbstractIterator implements org.apache.spark.util.TaskCompletionListener {
        private final ExchangeSource source;
        private final TaskContext context;
        private final UnsafeRow row;
        private final FrameCursor at = new FrameCursor();

        Rows(ExchangeSource source, int fields, TaskContext context) {
            this.source = source;
            this.context = context;
            this.row = new UnsafeRow(fields);
            context.addTaskCompletionListener((org.apache.spark.util.TaskCompletionListener) this);
        }

        public void onTaskCompletion(TaskContext c) {
            source.close();
        }

        public boolean hasNext() {
            return at.hasNext() || advance();
        }

        public Object next() {
            if (!at.hasNext() && !advance()) {
                throw new java.util.NoSuchElementException();
            }
            at.next(row);
            return row;
        }

        /** Take the next frame. The row last handed out may lie in the one before, and stays whole while hasNext looks on. */
        private boolean advance() {
            while (!at.hasNext()) {
                context.killTaskIfInterrupted();
                Frame next;
                try {
                    next = source.next();
                } catch (InterruptedException e) {
                    context.killTaskIfInterrupted();
                    throw new TaskKilledException("interrupted");
                } catch (IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
                if (next == null) {
                    source.close();
                    return false;
                }
                at.start(next);
            }
            return true;
        }
    }
}
