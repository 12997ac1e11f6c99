package onager.kernel;

import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.util.AccumulatorV2;

/** Brings what tasks add to accumulators to the process of a job's function, as long as there is one. */
final class FunctionAccumulator extends PythonAccumulatorV2 {
    private final transient FunctionGateway gateway;

    FunctionAccumulator(FunctionGateway gateway, String host, int port, String token) {
        super(host, port, token);
        this.gateway = gateway;
    }

    public synchronized void merge(AccumulatorV2 other) {
        if (!gateway.isOver()) {
            super.merge(other);
        }
    }
}
