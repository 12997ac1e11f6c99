package onager.plan;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Deque;
import onager.failure.RefusedException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.util.HadoopFSUtils$;

/**
 * Lists the files below a directory one by one, each directory in the order of names. So it can go on after any file, in another process,
 * too: what comes after it does not depend on what came before. Files without bytes, and those that Spark does not see, are left out.
 *
 * <p>On a local disk only the names of a directory are read at once, and each file is looked at when its turn comes. Elsewhere a directory
 * is listed whole before its first file is given, because no order is promised there.
 */
final class Listing {
    private final FileSystem fs;
    private final Path root;
    private final boolean isFlat;
    private final Deque<Level> levels = new ArrayDeque<>();

    /** One directory: its entries by name; *statuses* are null on a local disk. */
    private static final class Level {
        private final Path path;
        private final String prefix;
        private final String[] names;
        private final FileStatus[] statuses;
        private int next = 0;

        Level(Path path, String prefix, String[] names, FileStatus[] statuses) {
            this.path = path;
            this.prefix = prefix;
            this.names = names;
            this.statuses = statuses;
        }
    }

    /** A file; *position*: its path below the root, after which a listing can go on. */
    record Found(FileStatus file, String position) {}

    /**
     * Lists what comes after the file at *after*, null: everything. If it *isFlat*, files of directories below the root are no part of it,
     * as where Spark finds no partitions.
     */
    Listing(Path root, Configuration conf, boolean isFlat, String after) throws IOException {
        this.fs = root.getFileSystem(conf);
        this.root = fs.makeQualified(root);
        this.isFlat = isFlat;
        open(this.root, "");
        if (after != null) {
            skip(after.split("/"));
        }
    }

    Path root() {
        return root;
    }

    /** Whether *path* is a directory that this class can list. */
    static boolean isDirectory(Path path, Configuration conf) throws IOException {
        try {
            return path.getFileSystem(conf).getFileStatus(path).isDirectory();
        } catch (FileNotFoundException e) {
            return false;
        }
    }

    /** Returns the next file, or null at the end. */
    Found next() throws IOException {
        while (!levels.isEmpty()) {
            Level level = levels.getLast();
            if (level.next == level.names.length) {
                levels.removeLast();
                continue;
            }
            String name = level.names[level.next];
            FileStatus status = status(level, level.next++);
            if (status == null) {
                continue; // it has gone since
            }
            if (status.isDirectory()) {
                enter(status, level.prefix + name);
            } else if (status.getLen() > 0) {
                return new Found(status, level.prefix + name);
            }
        }
        return null;
    }

    private void enter(FileStatus directory, String name) throws IOException {
        if (!isFlat) {
            open(directory.getPath(), name + "/");
        } else if (name.contains("=")) {
            throw new RefusedException(root + " holds files, and the partition " + name
                    + ": read them apart, or list all of it first (onager.feed.fromFiles=0)");
        }
    }

    private void open(Path directory, String prefix) throws IOException {
        if (isLocal()) {
            String[] names = new java.io.File(directory.toUri().getPath()).list();
            names = names == null ? new String[0] : Arrays.stream(names).filter(Listing::isSeen).sorted().toArray(String[]::new);
            levels.addLast(new Level(directory, prefix, names, null));
            return;
        }
        FileStatus[] found = Arrays.stream(fs.listStatus(directory))
                .filter(each -> isSeen(each.getPath().getName()))
                .sorted(Comparator.comparing(each -> each.getPath().getName()))
                .toArray(FileStatus[]::new);
        String[] names = Arrays.stream(found).map(each -> each.getPath().getName()).toArray(String[]::new);
        levels.addLast(new Level(directory, prefix, names, found));
    }

    private static boolean isSeen(String name) {
        return !name.startsWith("_metadata") && !name.startsWith("_common_metadata")
                && !HadoopFSUtils$.MODULE$.shouldFilterOutPathName(name, HadoopFSUtils$.MODULE$.defaultIgnoredPathSegmentRegexPattern());
    }

    private boolean isLocal() {
        return "file".equals(root.toUri().getScheme());
    }

    private FileStatus status(Level level, int index) throws IOException {
        if (level.statuses != null) {
            return level.statuses[index];
        }
        var path = new Path(level.path, new Path(null, null, level.names[index])); // a name may have a colon
        try {
            var found = Files.readAttributes(java.nio.file.Path.of(path.toUri().getPath()), BasicFileAttributes.class);
            return new FileStatus(found.size(), found.isDirectory(), 1, fs.getDefaultBlockSize(path), found.lastModifiedTime().toMillis(),
                    path);
        } catch (NoSuchFileException e) {
            return null;
        }
    }

    /** Moves behind the file at *names*, which may be gone. */
    private void skip(String[] names) throws IOException {
        for (int depth = 0; depth < names.length; depth++) {
            Level level = levels.getLast();
            int place = Arrays.binarySearch(level.names, names[depth]);
            level.next = place < 0 ? -place - 1 : place + 1;
            if (place < 0 || depth == names.length - 1) {
                return;
            }
            FileStatus status = status(level, place);
            if (status == null || !status.isDirectory()) {
                return;
            }
            open(status.getPath(), level.prefix + names[depth] + "/");
        }
    }
}
