package onager.jobs;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * The cancelled tasks, as `run/partition`. Spark may restart a killed task in another process of a cluster, which does not know of the
 * cancellation; through this plugin, the task asks the driver.
 */
public final class UnwantedTasks implements SparkPlugin {
    static final Set<String> UNWANTED = ConcurrentHashMap.newKeySet();
    private static volatile PluginContext toDriver = null;

    @Override
    public DriverPlugin driverPlugin() {
        return new DriverPlugin() {
            @Override
            public Object receive(Object task) {
                return UNWANTED.contains(task);
            }
        };
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorPlugin() {
            @Override
            public void init(PluginContext context, Map<String, String> extraConf) {
                toDriver = context;
            }
        };
    }

    public static void add(String run, int partition) {
        UNWANTED.add(run + "/" + partition);
    }

    public static void remove(String run, int partition) {
        UNWANTED.remove(run + "/" + partition);
    }

    /** Return whether a task was cancelled, as far as this process knows or, if *ask*, the driver. */
    public static boolean has(String run, int partition, boolean ask) throws Exception {
        String task = run + "/" + partition;
        return UNWANTED.contains(task) || ask && toDriver != null && (Boolean) toDriver.ask(task);
    }
}
