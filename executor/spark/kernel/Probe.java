package onager.kernel;

import java.io.Serializable;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** A task that says whether the process that runs it sees the driver's file in the exchange directory, and can write there. */
public final class Probe extends AbstractFunction2 implements Serializable {
    private final Store store;
    private final String name;

    private Probe(Store store, String name) {
        this.store = store;
        this.name = name;
    }

    /** Return the problems of the processes that run *tasks* tasks, each once; none when all see the same directory. */
    static java.util.List ask(SparkContext sc, Store store, int tasks) throws Exception {
        String name = ".onager-probe-" + java.util.UUID.randomUUID();
        java.util.List numbers = new java.util.ArrayList();
        Object[] partitions = new Object[tasks];
        for (int i = 0; i < tasks; i++) {
            numbers.add(Integer.valueOf(i));
            partitions[i] = Integer.valueOf(i);
        }
        final java.util.Set problems = new java.util.TreeSet();
        store.create(name).commit();
        try {
            RDD rdd = new JavaSparkContext(sc).parallelize(numbers, tasks).rdd();
            Seq all = Kernel.seq(partitions);
            sc.runJob(rdd, new Probe(store, name), all, new Collector(problems), ClassTag$.MODULE$.apply(String.class));
        } finally {
            store.delete(name);
        }
        return new java.util.ArrayList(problems);
    }

    private static final class Collector extends AbstractFunction2 {
        private final java.util.Set problems;

        Collector(java.util.Set problems) {
            this.problems = problems;
        }

        public Object apply(Object index, Object problem) {
            if (!((String) problem).isEmpty()) {
                problems.add(problem);
            }
            return BoxedUnit.UNIT;
        }
    }

    public Object apply(Object taskContext, Object rows) {
        String host = org.apache.spark.SparkEnv.get().blockManager().blockManagerId().host();
        try {
            store.open(name).close();
        } catch (Exception e) {
            return host + " does not see what was written here";
        }
        try {
            String mine = name + "-" + ((TaskContext) taskContext).taskAttemptId();
            store.create(mine).commit();
            store.delete(mine);
        } catch (Exception e) {
            return host + " cannot write there: " + Failures.text(e);
        }
        return "";
    }
}
