package onager.kernel;

import java.util.Map;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Lets a task in a process of a cluster ask the driver whether anybody still wants it. Spark starts a task that it was told to kill
 * once more, elsewhere, where nobody has heard of that.
 */
public final class ClusterPlugin implements SparkPlugin {
    private static volatile PluginContext toDriver = null;

    public DriverPlugin driverPlugin() {
        return new Driver();
    }

    public ExecutorPlugin executorPlugin() {
        return new Executor();
    }

    /** Answers in the driver. */
    public static final class Driver implements DriverPlugin {
        public Object receive(Object task) {
            return Boolean.valueOf(Task.UNWANTED.contains(task));
        }
    }

    /** Keeps the way to the driver in a process of the cluster. */
    public static final class Executor implements ExecutorPlugin {
        public void init(PluginContext context, Map extraConf) {
            toDriver = context;
        }
    }

    /** Return whether *task*, `run/partition`, was cancelled, as far as this process knows or, if *ask*, the driver. */
    static boolean isUnwanted(String task, boolean ask) throws Exception {
        if (Task.UNWANTED.contains(task)) {
            return true;
        }
        return ask && toDriver != null && ((Boolean) toDriver.ask(task)).booleanValue();
    }
}
