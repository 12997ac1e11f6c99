package onager.run;

import java.util.Map;

/** Facts about a written partition. */
final class Written {
    long rows = 0;
    long bytes = 0;
    String[] files = new String[0];
    /** The result if it is not in a file. */
    byte[] inline = null;
    /** The checksum that seals a result. */
    String checksum = "";

    void into(Map<String, Object> fields) {
        fields.put("rows", rows);
        fields.put("bytes", bytes);
        fields.put("files", files);
        fields.put("inline", inline != null);
        fields.put("checksum", checksum);
    }
}
