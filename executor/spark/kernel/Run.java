package onager.kernel;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.SparkContext;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** One task set being run: a thread that waits for its Spark job, and hands each partition's outcome on as it comes. */
final class Run extends Thread {
    private final Kernel kernel;
    private final SparkContext sc;
    private final String run;
    final Kernel.Bound bound;
    private final Seq partitions;
    private final Task task;
    private final Set cancelled = new HashSet();
    private boolean hasEnded = false;

    Run(Kernel kernel, SparkContext sc, String run, Kernel.Bound bound, Seq partitions, Task task) {
        super("onager-" + run);
        setDaemon(true);
        this.kernel = kernel;
        this.sc = sc;
        this.run = run;
        this.bound = bound;
        this.partitions = partitions;
        this.task = task;
    }

    private final class Handler extends AbstractFunction2 {
        public Object apply(Object index, Object outcome) {
            kernel.events.add(new Object[] {run, outcome});
            return BoxedUnit.UNIT;
        }
    }

    public void run() {
        Throwable failure = null;
        String pool = kernel.pools.take();
        try {
            kernel.enter(bound.session, run, pool);
            sc.runJob(bound.rdd, task, partitions, new Handler(), ClassTag$.MODULE$.apply(Outcome.class));
        } catch (Throwable e) {
            failure = e;
        } finally {
            kernel.pools.give(pool);
            end();
            kernel.ended(run, failure);
        }
    }

    private synchronized void end() {
        hasEnded = true;
        for (int i = 0; i < partitions.size(); i++) {
            Task.UNWANTED.remove(run + "/" + partitions.apply(i));
        }
    }

    synchronized void cancel(List unwanted, Tracker tracker) {
        if (hasEnded) {
            return; // nothing would take away again what is noted now
        }
        for (int i = 0; i < unwanted.size(); i++) {
            Task.UNWANTED.add(run + "/" + unwanted.get(i));
            cancelled.add(unwanted.get(i));
        }
        if (cancelled.size() >= partitions.size()) {
            sc.cancelJobGroup(run);
        } else {
            for (int i = 0; i < unwanted.size(); i++) {
                tracker.kill(run, ((Integer) unwanted.get(i)).intValue());
            }
        }
    }
}
