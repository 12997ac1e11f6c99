package onager.kernel;

import java.util.List;
import py4j.ReturnObject;
import py4j.commands.CallCommand;

/** A call by the process of a job's function, which returns when accumulators have what the tasks added that it ran. */
final class FunctionCall extends CallCommand {
    private final FunctionGateway owner;

    FunctionCall(FunctionGateway owner) {
        this.owner = owner;
    }

    protected ReturnObject invokeMethod(String methodName, String targetObjectId, List arguments) {
        ReturnObject returned = super.invokeMethod(methodName, targetObjectId, arguments);
        owner.settle();
        return returned;
    }
}
