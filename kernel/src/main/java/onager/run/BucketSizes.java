package onager.run;

/** The sizes of an exchange's buckets as a task reports them: about their logarithm to 1.1, a byte each, as in Spark's MapStatus. */
final class BucketSizes {
    /** With more buckets, nobody lays out who reads them. */
    private static final int MOST = 4096;
    private static final double BASE = Math.log(1.1);
    private static final int LARGEST = 255;

    private BucketSizes() {}

    /** Return a byte for each bucket; none if there is one bucket, if there are too many, or if *bytes*, by bucket, are not known (null). */
    static byte[] of(long[] bytes) {
        if (bytes == null || bytes.length < 2 || bytes.length > MOST) {
            return new byte[0];
        }
        var sizes = new byte[bytes.length];
        for (int i = 0; i < sizes.length; i++) {
            sizes[i] = (byte) size(bytes[i]);
        }
        return sizes;
    }

    private static int size(long bytes) {
        return bytes == 0L ? 0 : Math.max(1, (int) Math.min(LARGEST, Math.ceil(Math.log(bytes) / BASE)));
    }
}
