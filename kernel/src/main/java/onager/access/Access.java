package onager.access;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * What jobs may read and use in this Spark: places on the local disk, file systems, data sources, programs. It is fixed when Spark starts,
 * by settings `spark.onager.…` that no session can change.
 */
public final class Access {
    /** The formats of files that every job may use, besides data sources in Python, which run as the job's other Python does. */
    public static final List<String> FORMATS = List.of("parquet", "orc", "csv", "json", "text", "xml", "binaryFile");

    private static final Set<String> SYSTEM = Set.of("/proc", "/sys", "/dev");
    private static final String PRIVATE = "spark.onager.privatePaths";
    private static final String KEPT = "/.checkpoints/";
    /** Where executors leave marks in a shared directory, by which they know it again; no listing has it. */
    static final String PLACE = ".onager-place";
    private static volatile Access current;

    private final SparkEnv env;
    private final String privateText;
    private final List<String> privates;
    /** Null: any place that is not private. */
    private final List<String> roots;
    /** Where tables lie that are made without a location. */
    private final List<String> warehouse;
    /** Where Spark itself writes, and no job reads. */
    private final List<String> own;
    private final Set<String> allowed;
    private final boolean hasCatalogs;
    private final boolean hasHive;

    private Access(SparkEnv env, SparkConf conf) {
        this.env = env;
        this.privateText = conf.get(PRIVATE, "");
        this.privates = lines(conf, PRIVATE);
        this.roots = conf.contains("spark.onager.roots") ? lines(conf, "spark.onager.roots") : null;
        this.warehouse = lines(conf, "spark.onager.warehouse");
        this.own = Stream.of(conf.get("spark.eventLog.dir", "")).filter(dir -> !dir.isEmpty()).map(Access::path).toList();
        this.allowed = lines(conf, "spark.onager.allow").stream().map(name -> name.toLowerCase(Locale.ROOT)).collect(Collectors.toSet());
        this.hasCatalogs = Boolean.parseBoolean(conf.get("spark.onager.catalogs", "false"));
        this.hasHive = conf.get("spark.sql.catalogImplementation", "").equals("hive");
    }

    private static List<String> lines(SparkConf conf, String name) {
        return conf.get(name, "").lines().filter(line -> !line.isEmpty()).toList();
    }

    /** Return what counts in this process; null while its Spark starts. */
    static Access current() {
        SparkEnv env = SparkEnv.get();
        Access known = current;
        if (env == null || (known != null && known.env == env && known.privateText.equals(env.conf().get(PRIVATE, "")))) {
            return env == null ? null : known;
        }
        current = known = new Access(env, env.conf());
        return known;
    }

    /** Return what counts in this process, whose Spark has started. */
    public static Access get() {
        Access access = current();
        if (access == null) {
            throw new IllegalStateException("Spark has not started, or has ended");
        }
        return access;
    }

    // ------------------------------------------------------------ names

    /** Whether the operator allows *name*: a data source, a file system with a colon (`s3a:`), or `transform`. */
    public boolean allows(String name) {
        return allowed.contains(name.toLowerCase(Locale.ROOT));
    }

    /** Whether the operator has configured catalogs besides Onager's own, whose tables may lie on any file system. */
    public boolean hasCatalogs() {
        return hasCatalogs;
    }

    /** Whether the operator has configured a Hive metastore, which then stands in for Onager's own catalog. */
    public boolean hasHive() {
        return hasHive;
    }

    /** Return how an operator allows *name*. */
    public static String flag(String name) {
        return "start executors with --allow " + name + " (ONAGER_EXECUTOR_ALLOW)";
    }

    /** Whether files of *scheme* may be read, at least in some place. */
    boolean allowsSomeOf(String scheme) {
        return allows(scheme + ":") || Stream.concat(warehouse.stream(), roots == null ? Stream.empty() : roots.stream())
                .anyMatch(place -> place.startsWith(scheme + ":"));
    }

    // ------------------------------------------------------------ places

    /** Throws if a job must not read what lies at *path*, or what lies below it; *home*: the file system of paths that name none. */
    public void checkRead(org.apache.hadoop.fs.Path path, String home) {
        checkRead(path, home, false);
    }

    /** The same; *isOfCatalog*: a catalog that the operator has configured says that a table is there, so it may be on any file system. */
    public void checkRead(org.apache.hadoop.fs.Path path, String home, boolean isOfCatalog) {
        String why = refusal(path, home, isOfCatalog);
        if (why != null) {
            throw new RefusedException(shown(path) + " cannot be read: " + why);
        }
    }

    private String refusal(org.apache.hadoop.fs.Path path, String home, boolean isOfCatalog) {
        String scheme = path.toUri().getScheme() == null ? home : path.toUri().getScheme();
        if (!scheme.equalsIgnoreCase("file")) {
            return elsewhere(path.toString(), scheme.toLowerCase(Locale.ROOT), isOfCatalog);
        }
        String real = real(Path.of(path.toUri().getPath()));
        String why = refusal(real);
        if (why != null) {
            return why;
        }
        String held = held(real);
        return held == null ? null : "it holds " + held + whose(held) + "; name the directories below it that are wanted";
    }

    /** Return a private place at *real* or below it, or null. */
    private String held(String real) {
        return privates.stream().filter(each -> isBelow(each, real)).findFirst().orElse(null);
    }

    /** Throws if the local directory *given* holds a private place: it is neither moved nor removed. */
    void checkHolds(Path given) {
        String held = held(real(given));
        if (held != null) {
            throw new RefusedException(given + " cannot be used: it holds " + held + whose(held));
        }
    }

    /** Whether the operator allows any data source besides the formats of files. */
    public boolean allowsSources() {
        return allowed.stream().anyMatch(name -> !name.endsWith(":") && !name.equals("transform"));
    }

    private String elsewhere(String path, String scheme, boolean isOfCatalog) {
        String closest = closest(privates, path);
        if (closest != null) {
            return "it is in " + closest + whose(closest) + "; read from elsewhere";
        }
        boolean isBelowRoot = closest(warehouse, path) != null || (roots != null && closest(roots, path) != null);
        return isOfCatalog || isBelowRoot || allows(scheme + ":") ? null
                : "the file system " + scheme + " is not among those that jobs may use; " + flag(scheme + ":");
    }

    /** Return why nothing at *real*, a path without links, is for jobs; null: it is. The most specific place that holds it counts. */
    private String refusal(String real) {
        if (real.endsWith("/" + PLACE) || real.contains("/" + PLACE + "/")) {
            return "it is in a directory " + PLACE + ", where Onager keeps files of its own; read from elsewhere";
        }
        String closest = closest(privates, real);
        String root = roots == null ? "/" : closest(roots, real);
        String table = closest(warehouse, real);
        int open = Math.max(root == null ? -1 : root.length(), table == null ? -1 : table.length());
        if (closest != null && open <= closest.length()) {
            return "it is in " + closest + whose(closest) + "; read from elsewhere";
        }
        return open >= 0 ? null : "it is in none of the directories that jobs may use (" + (roots.isEmpty() ? "there are none" : String.join(", ", roots))
                + "); start executors with --root DIRECTORY (ONAGER_EXECUTOR_ROOTS)";
    }

    /**
     * Throws if the local file *given* must not be opened, listed or changed by Spark, by any of its names. Checkpoints are read by those
     * who have them, so they are open under their own names; queries that name them are refused before.
     */
    void check(Path given) {
        String real = real(given);
        String why = refusal(real);
        if (why != null && !isKept(given.toString(), real) && own.stream().noneMatch(dir -> isBelow(given.toString(), dir) && isBelow(real, dir))) {
            throw new RefusedException(given + " cannot be used: " + why);
        }
    }

    private boolean isKept(String given, String real) {
        int at = real.lastIndexOf(KEPT);
        return at > 0 && privates.contains(real.substring(0, at)) && given.endsWith(real.substring(at));
    }

    private static String whose(String place) {
        return SYSTEM.contains(place) ? ", which is the system's" : ", where Onager keeps files of its own";
    }

    /** Return the longest of *places* that holds *path*, or null. */
    private static String closest(List<String> places, String path) {
        String found = null;
        for (String place : places) {
            if (isBelow(path, place) && (found == null || place.length() > found.length())) {
                found = place;
            }
        }
        return found;
    }

    private static boolean isBelow(String path, String directory) {
        return path.equals(directory) || path.startsWith(directory.endsWith("/") ? directory : directory + "/");
    }

    /** Return *path* without links, as far as it exists. */
    private static String real(Path path) {
        var missing = new ArrayList<Path>();
        for (Path at = path.toAbsolutePath().normalize(); at != null; at = at.getParent()) {
            try {
                Path real = at.toRealPath();
                for (int i = missing.size() - 1; i >= 0; i--) {
                    real = real.resolve(missing.get(i));
                }
                return real.toString();
            } catch (IOException e) {
                if (at.getFileName() != null) {
                    missing.add(at.getFileName()); // it does not exist, or is not readable
                }
            }
        }
        return path.toString();
    }

    private static String path(String location) {
        return new org.apache.hadoop.fs.Path(location).toUri().getPath();
    }

    private static String shown(org.apache.hadoop.fs.Path path) {
        return path.toString().replaceFirst("^file:", "");
    }
}
