package onager.catalog;

/** What a planning has read of the catalog has changed meanwhile. */
@SuppressWarnings("serial")
public final class CatalogMoved extends RuntimeException {
    CatalogMoved(String key) {
        super("the catalog has changed while the job was planned: " + key);
    }
}
