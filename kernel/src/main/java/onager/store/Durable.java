package onager.store;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Makes local files survive a loss of power: their content, and the directories that name them. */
public final class Durable {
    /** EINVAL and ENOTSUP, which file systems answer that sync no directories: some on networks, and some in user space. */
    private static final Set<String> CANNOT = Set.of("Invalid argument", "Operation not supported");

    private Durable() {}

    /** Flush the content of *files*, and the names in every directory from theirs up to *top*. */
    public static void sync(List<Path> files, Path top) throws IOException {
        var synced = new HashSet<Path>();
        for (Path file : files) {
            syncFile(file);
        }
        for (Path file : files) {
            for (Path at = file.getParent(); at.startsWith(top) && synced.add(at); at = at.getParent()) {
                syncDirectory(at);
            }
        }
    }

    /** Flush the names in *directory* and in all above it, up to *top*. */
    static void syncUp(Path directory, Path top) throws IOException {
        for (Path at = directory; at != null && at.startsWith(top); at = at.getParent()) {
            syncDirectory(at);
        }
    }

    /** Return the directories that name something new once *directory* and all above it have been made. */
    public static List<Path> namesNew(Path directory) {
        var found = new ArrayList<Path>();
        for (Path at = directory; at.getParent() != null && !Files.isDirectory(at); at = at.getParent()) {
            found.add(at.getParent());
        }
        return found;
    }

    public static void syncDirectories(List<Path> directories) throws IOException {
        for (Path each : directories) {
            syncDirectory(each);
        }
    }

    private static void syncFile(Path file) throws IOException {
        try (var channel = FileChannel.open(file, StandardOpenOption.READ)) {
            channel.force(true);
        }
    }

    private static void syncDirectory(Path directory) throws IOException {
        try (var channel = FileChannel.open(directory, StandardOpenOption.READ)) {
            channel.force(true);
        } catch (IOException e) {
            if (!CANNOT.contains(e.getMessage())) {
                throw e;
            }
        }
    }
}
