package onager.stream;

/** Receives the result of a request, once, on any thread. */
interface StreamReply {
    void answer(StreamAnswer answer);

    /** There is no answer: the connection broke, or the request was refused. */
    void lose(Throwable why);
}
