package onager.gateway;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.util.ThreadUtils;

/**
 * Brings what tasks add to accumulators to the process of a job's function, as long as there is one: on a thread of its own, since the
 * process answers once code of the function has run, and Spark merges on the one thread that schedules the tasks of all jobs.
 */
@SuppressWarnings("serial")
final class FunctionAccumulator extends PythonAccumulatorV2 {
    private static final int MOST_WAITING = 100_000;
    private static final long PATIENCE_S = 60;

    private final transient FunctionGateway gateway;
    private final transient PythonAccumulatorV2 process;
    private final transient ThreadPoolExecutor thread = ThreadUtils.newDaemonCachedThreadPool("onager-accumulator", 1, 1);

    FunctionAccumulator(FunctionGateway gateway, String host, int port, String token) {
        super(host, port, token);
        this.gateway = gateway;
        this.process = new PythonAccumulatorV2(host, port, token);
    }

    @Override
    public void merge(AccumulatorV2<byte[], java.util.List<byte[]>> other) {
        if (gateway.isOver()) {
            return;
        }
        if (thread.getQueue().size() > MOST_WAITING) {
            gateway.cancelJobs("the function does not take what its tasks add to accumulators");
        } else {
            thread.execute(() -> update(other));
        }
    }

    /** Wait until all that was merged has arrived; not for an update that takes more than a minute, which may itself wait for this. */
    void settle() throws InterruptedException {
        Future<?> last = thread.submit(() -> {});
        long arrived = -1;
        while (!last.isDone() && arrived != thread.getCompletedTaskCount()) {
            arrived = thread.getCompletedTaskCount();
            try {
                last.get(PATIENCE_S, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                // one of those before it takes long
            } catch (ExecutionException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private void update(AccumulatorV2<byte[], java.util.List<byte[]>> added) {
        if (gateway.isOver()) {
            return;
        }
        try {
            process.merge(added);
        } catch (Throwable e) {
            log().warn("a job's function did not take what a task added to its accumulators", e);
        }
    }
}
