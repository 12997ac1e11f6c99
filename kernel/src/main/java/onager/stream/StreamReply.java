package onager.stream;

/** Takes what became of a request, once, on any thread. */
interface StreamReply {
    void answer(StreamAnswer answer);

    /** No answer will come: the connection broke, or the request was refused. */
    void lose(Throwable why);
}
