package onager.access;

import java.io.IOException;
import java.net.URI;
import java.util.Locale;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/** The file systems of this Spark. */
public final class FileSystems {
    private static final Pattern IMPLEMENTATION = Pattern.compile("fs\\.([^.]+)\\.impl");
    private static final String LOCAL = "file";
    /** No table of a catalog lies on one of these. */
    private static final Set<String> WITHOUT_TABLES = Set.of("ftp", "http", "https", "sftp");

    private FileSystems() {}

    /**
     * Has *conf*, from which all sessions take theirs, refuse the file systems that jobs may not use; throws an
     * IllegalStateException if local files are not guarded.
     */
    public static void close(Configuration conf) throws IOException {
        URI local = URI.create("file:///");
        if (!(FileSystem.get(local, conf) instanceof GuardedFiles)) {
            FileSystem.get(local, conf).close(); // made by somebody before the settings were known; closed, it is made anew
        }
        if (!(FileSystem.get(local, conf) instanceof GuardedFiles)) {
            throw new IllegalStateException("files are not guarded: fs.file.impl is " + conf.get("fs.file.impl"));
        }
        load(conf);
        refuseOthers(conf);
    }

    /** Load the classes of the file systems that jobs may use: some have all of Hadoop's settings read anew when they are loaded. */
    private static void load(Configuration conf) {
        Access access = Access.get();
        for (var entry : conf) {
            var named = IMPLEMENTATION.matcher(entry.getKey());
            if (named.matches() && (access.hasCatalogs() || access.allowsSomeOf(named.group(1)))) {
                try {
                    Class.forName(conf.get(entry.getKey()), true, conf.getClassLoader());
                } catch (ClassNotFoundException | LinkageError e) {
                    // what cannot be loaded cannot be used
                }
            }
        }
    }

    private static void refuseOthers(Configuration conf) {
        Access access = Access.get();
        var schemes = new TreeSet<String>();
        for (var loaded = ServiceLoader.load(FileSystem.class).iterator(); loaded.hasNext();) {
            try {
                schemes.add(loaded.next().getScheme());
            } catch (ServiceConfigurationError | LinkageError | UnsupportedOperationException e) {
                // what cannot be made cannot be used
            }
        }
        for (var entry : conf) {
            var named = IMPLEMENTATION.matcher(entry.getKey());
            if (named.matches()) {
                schemes.add(named.group(1).toLowerCase(Locale.ROOT));
            }
        }
        schemes.remove(LOCAL);
        if (access.hasCatalogs()) { // whose tables lie where they say; what queries name is checked in their plans
            schemes.retainAll(WITHOUT_TABLES);
        }
        for (String scheme : schemes) {
            if (!access.allowsSomeOf(scheme)) {
                conf.set("fs." + scheme + ".impl", RefusedFiles.class.getName());
            }
        }
    }
}
