package onager.run;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.UUID;
import java.util.stream.IntStream;
import onager.failure.Failures;
import onager.store.Store;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** A task that checks whether its process sees the driver's file in the exchange directory, and can write there. */
@SuppressWarnings("serial")
public final class Probe extends AbstractFunction2<TaskContext, Iterator<Object>, String> implements Serializable {
    private final Store store;
    private final String name;

    private Probe(Store store, String name) {
        this.store = store;
        this.name = name;
    }

    /** Return the distinct problems of the processes that run *tasks* probes; empty if all share the directory. */
    public static List<String> ask(SparkContext sc, Store store, int tasks) throws Exception {
        String name = ".onager-probe-" + UUID.randomUUID();
        var problems = new TreeSet<String>();
        store.create(name).commit();
        try {
            var numbers = Seqs.<Object>seq(IntStream.range(0, tasks).boxed().toList());
            var rdd = sc.parallelize(numbers, tasks, Seqs.tag(Object.class));
            sc.runJob(rdd, new Probe(store, name), numbers, (index, problem) -> {
                problems.add(problem);
                return BoxedUnit.UNIT;
            }, Seqs.tag(String.class));
        } finally {
            store.delete(name);
        }
        problems.remove("");
        return new ArrayList<>(problems);
    }

    @Override
    public String apply(TaskContext context, Iterator<Object> rows) {
        String host = SparkEnv.get().blockManager().blockManagerId().host();
        try {
            store.open(name).close();
        } catch (Exception e) {
            return host + " does not see the files of this machine";
        }
        try {
            String mine = name + "-" + context.taskAttemptId();
            store.create(mine).commit();
            store.delete(mine);
        } catch (Exception e) {
            return host + " cannot write there: " + Failures.text(e);
        }
        return "";
    }
}
