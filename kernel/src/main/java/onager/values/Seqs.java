package onager.values;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.function.Function;
import scala.PartialFunction;
import scala.PartialFunction$;
import scala.collection.Iterator;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** Conversions between the collections and functions of Scala and Java. */
public final class Seqs {
    private Seqs() {}

    public static <T> Seq<T> seq(Collection<? extends T> items) {
        return CollectionConverters.asScala(new ArrayList<T>(items)).toSeq();
    }

    @SafeVarargs
    @SuppressWarnings("varargs")
    public static <T> Seq<T> seq(T... items) {
        return CollectionConverters.asScala(Arrays.asList(items)).toSeq();
    }

    /** Return *seq* as an unmodifiable list. */
    public static <T> List<T> list(scala.collection.Seq<T> seq) {
        return CollectionConverters.asJava(seq);
    }

    /** Return the remaining *items*, for one iteration. */
    public static <T> Iterable<T> each(Iterator<T> items) {
        return () -> CollectionConverters.asJava(items);
    }

    public static <K, V> scala.collection.immutable.Map<K, V> map(java.util.Map<K, V> entries) {
        return Map$.MODULE$.from(CollectionConverters.asScala(entries));
    }

    public static <T> ClassTag<T> tag(Class<T> of) {
        return ClassTag$.MODULE$.apply(of);
    }

    /** Return the function that applies *change* to each *kind*, and leaves everything else as it is. */
    public static <A, S extends A> PartialFunction<A, A> change(Class<S> kind, Function<S, ? extends A> change) {
        return PartialFunction$.MODULE$.fromFunction(item -> kind.isInstance(item) ? change.apply(kind.cast(item)) : item);
    }
}
