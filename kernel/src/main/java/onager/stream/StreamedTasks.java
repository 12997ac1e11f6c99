package onager.stream;

import java.util.LinkedHashMap;
import java.util.Map;

/** The tasks of a stage that stream; *taskAttempts* is in the order of *partitions*. */
public record StreamedTasks(String job, int stage, int stageAttempt, int[] partitions, int[] taskAttempts) {
    /** Return the names of the executions by partition. */
    Map<Integer, String> names() {
        var names = new LinkedHashMap<Integer, String>();
        for (int i = 0; i < partitions.length; i++) {
            names.put(partitions[i], StreamRequest.taskName(job, stage, stageAttempt, partitions[i], taskAttempts[i]));
        }
        return names;
    }
}
