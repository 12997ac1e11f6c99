package onager.run;

import java.util.Map;

/** What a written partition amounts to. */
final class Written {
    long rows = 0;
    long bytes = 0;
    String[] files = new String[0];
    /** The result, where it is not in a file. */
    byte[] inline = null;
    /** Of what is read as a result: seals it. */
    String checksum = "";

    void into(Map<String, Object> fields) {
        fields.put("rows", rows);
        fields.put("bytes", bytes);
        fields.put("files", files);
        fields.put("inline", inline != null);
        fields.put("checksum", checksum);
    }
}
