package onager.kernel;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Finds tasks that wait for each other in a circle, and makes room in one channel of it.
 *
 * <p>Source: T. Parks, Bounded Scheduling of Process Networks (1995): with channels that are bounded, a network whose
 * processes read and write in an order of their own can stop although it would go on with larger ones; letting the smallest
 * full channel grow, only then, goes on for as long as the network itself would, in memory as small as it allows.
 */
final class Deadlocks {
    private Deadlocks() {}

    /** Let in a frame more where tasks of *all* wait in a circle; return the channel, or null when there is no circle. */
    static StreamChannel relieve(List all) {
        Map live = live(all);
        StreamChannel smallest = null;
        for (int i = 0; i < all.size(); i++) {
            StreamTask task = (StreamTask) all.get(i);
            if (live.containsKey(task)) {
                continue;
            }
            for (int w = 0; w < task.waits.size(); w++) {
                StreamTask.Wait wait = (StreamTask.Wait) task.waits.get(w);
                if (wait.cursor == null && (smallest == null || wait.channel.heldBytes() < smallest.heldBytes()) && isInCircle(wait)) {
                    smallest = wait.channel;
                }
            }
        }
        if (smallest != null) {
            smallest.grant();
        }
        return smallest;
    }

    /** The tasks that run, or will once those do that they wait for. */
    private static Map live(List all) {
        Map live = new IdentityHashMap();
        boolean grew = true;
        while (grew) {
            grew = false;
            for (int i = 0; i < all.size(); i++) {
                StreamTask task = (StreamTask) all.get(i);
                if (!live.containsKey(task) && isLive(task, live)) {
                    live.put(task, Boolean.TRUE);
                    grew = true;
                }
            }
        }
        return live;
    }

    private static boolean isLive(StreamTask task, Map live) {
        for (int i = 0; i < task.waits.size(); i++) {
            StreamTask.Wait wait = (StreamTask.Wait) task.waits.get(i);
            if (!wait.isOn() || live.keySet().containsAll(wait.waitsFor())) {
                return true;
            }
        }
        return task.waits.isEmpty();
    }

    /** Whether a writer waits for a task that in the end waits for the writer. */
    private static boolean isInCircle(StreamTask.Wait wait) {
        Set seen = new HashSet();
        List todo = new ArrayList(wait.waitsFor());
        while (!todo.isEmpty()) {
            StreamTask task = (StreamTask) todo.remove(todo.size() - 1);
            if (task == wait.task) {
                return true;
            }
            if (seen.add(task)) {
                for (int i = 0; i < task.waits.size(); i++) {
                    todo.addAll(((StreamTask.Wait) task.waits.get(i)).waitsFor());
                }
            }
        }
        return false;
    }
}
