package onager.testing;

import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
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
    static StreamChannel relieve(List<StreamTask> all) {
        Set<StreamTask> live = live(all);
        StreamChannel smallest = all.stream().filter(task -> !live.contains(task)).flatMap(task -> task.waits.stream())
                .filter(wait -> wait.cursor() == null && isInCircle(wait)).map(StreamTask.Wait::channel)
                .min(Comparator.comparingLong(StreamChannel::heldBytes)).orElse(null);
        if (smallest != null) {
            smallest.grant();
        }
        return smallest;
    }

    /** The tasks that run, or will once those do that they wait for. */
    private static Set<StreamTask> live(List<StreamTask> all) {
        var live = new HashSet<StreamTask>();
        boolean grew = true;
        while (grew) {
            grew = false;
            for (StreamTask task : all) {
                boolean isLive = task.waits.isEmpty() || task.waits.stream().anyMatch(wait -> !wait.isOn() || live.containsAll(wait.waitsFor()));
                grew = isLive && live.add(task) || grew;
            }
        }
        return live;
    }

    /** Whether a writer waits for a task that in the end waits for the writer. */
    private static boolean isInCircle(StreamTask.Wait wait) {
        var seen = new HashSet<StreamTask>();
        var todo = new ArrayDeque<>(wait.waitsFor());
        while (!todo.isEmpty()) {
            StreamTask task = todo.pop();
            if (task == wait.task()) {
                return true;
            }
            if (seen.add(task)) {
                task.waits.forEach(each -> todo.addAll(each.waitsFor()));
            }
        }
        return false;
    }
}
