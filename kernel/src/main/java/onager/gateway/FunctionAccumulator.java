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
 * Sends updates of accumulators to the process of a job's function, while it runs. It uses its own thread: the process answers only after
 * code of the function has run, and Spark merges updates on the single thread that schedules the tasks of all jobs.
 */
@SuppressWarnings("serial")
final class FunctionAccumulator extends PythonAccumulatorV2 {
    private static final int MAX_WAITING = 100_000;
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
        if (thread.getQueue().size() > MAX_WAITING) {
            gateway.cancelJobs("the function does not accept updates of its accumulators");
        } else {
            thread.execute(() -> update(other));
        }
    }

    /** Wait until all merged updates have arrived, but at most a minute for each, since an update may itself wait for this call. */
    void settle() throws InterruptedException {
        Future<?> last = thread.submit(() -> {});
        long arrived = -1;
        while (!last.isDone() && arrived != thread.getCompletedTaskCount()) {
            arrived = thread.getCompletedTaskCount();
            try {
                last.get(PATIENCE_S, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                // an earlier update takes long
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
            log().warn("a job's function did not accept an update of its accumulators", e);
        }
    }
}
