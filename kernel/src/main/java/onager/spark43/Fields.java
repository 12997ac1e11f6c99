package onager.spark43;

import java.lang.reflect.Field;

/** Private fields of Spark's classes. */
final class Fields {
    private Fields() {}

    /** Returns the field *name* of a class; throws an IllegalStateException if this Spark has none. */
    static Field of(Class<?> type, String name) {
        try {
            var field = type.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException e) {
            throw new IllegalStateException("there is no " + name + " in " + type.getSimpleName() + " here", e);
        }
    }
}
