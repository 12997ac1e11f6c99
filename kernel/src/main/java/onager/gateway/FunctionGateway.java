package onager.gateway;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.net.SocketFactory;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.sql.classic.SparkSession;
import py4j.ClientServerConnection;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.JVMView;
import py4j.JavaServer;
import py4j.Py4JPythonClientPerThread;
import py4j.Py4JServerConnection;
import py4j.PythonClient;
import py4j.ReturnObject;
import py4j.commands.CallCommand;
import scala.concurrent.Await;
import scala.concurrent.duration.Duration;

/**
 * The gateway into this JVM for the process of one job's function. The process's objects here are released with the gateway, however the
 * process ends.
 *
 * <p>The threads that serve it inherit the job group, the pool, a tag of this gateway, and the active session from the thread that opens
 * it. So all Spark jobs that any thread of the process starts can be cancelled.
 */
public final class FunctionGateway {
    /** The packages that PySpark imports into each gateway, with one call each. */
    private static final List<String> PACKAGES = List.of(
            "org.apache.spark.api.java", "org.apache.spark.api.python", "org.apache.spark.ml.python", "org.apache.spark.mllib.api.python",
            "org.apache.spark.resource", "org.apache.spark.sql.classic", "org.apache.spark.sql.api.python", "org.apache.spark.sql.hive");
    private static final List<String> CLASSES = List.of(
            "org.apache.spark.SparkConf", "org.apache.spark.sql.Encoders", "org.apache.spark.sql.OnSuccessCall",
            "org.apache.spark.sql.functions", "scala.Tuple2");
    private static final String ENDED = "the function that started it has ended";
    private static final long BY_THEMSELVES_MS = 100;
    private static final long AGAIN_MS = 200;

    private final SparkContext sc;
    private final JobConfiguration hadoop;
    private final String ids;
    private final String tag = "onager-function-" + UUID.randomUUID();
    private final String token = UUID.randomUUID().toString() + UUID.randomUUID();
    private final Server server;
    private final Set<Thread> threads = new HashSet<>();
    private volatile boolean isOver = false;
    private volatile FunctionAccumulator accumulator = null;
    private volatile Object frame = null;
    private volatile Throwable error = null;

    /** Open a gateway for a function that plans in *session*; *accumulator*: the executor's, whose updates are not read. */
    public FunctionGateway(SparkContext sc, SparkSession session, PythonAccumulatorV2 accumulator) {
        this.sc = sc;
        JavaSparkContext context = new JavaSparkContext(sc);
        this.hadoop = new JobConfiguration(sc.hadoopConfiguration(), session);
        sc.addJobTag(tag);
        InetAddress loopback = GatewayServer.defaultAddress();
        PythonClient python = new PythonClient(null, null, 0, loopback, 30, TimeUnit.SECONDS, SocketFactory.getDefault(), null, true, 0, token);
        this.server = new Server(this, python, token);
        python.setGateway(server.getGateway());
        JVMView names = server.getGateway().getDefaultJVMView();
        PACKAGES.forEach(each -> names.addStarImport(each + ".*"));
        CLASSES.forEach(names::addSingleImport);
        this.ids = Stream.of(session, context, context.getConf(), accumulator).map(server.getGateway()::putNewObject)
                .collect(Collectors.joining(" "));
        python.setJavaServer(server);
        server.start();
    }

    /** Return the ids of the job's session, the context, a copy of Spark's settings, and the executor's accumulator. */
    public String ids() {
        return ids;
    }

    public int port() {
        return server.getListeningPort();
    }

    public String token() {
        return token;
    }

    // ------------------------------------------------------------ for the process

    public JobConfiguration hadoopConfiguration() {
        return hadoop;
    }

    /** Make the accumulator that sends updates to the process, which listens at *port* of this machine. */
    public PythonAccumulatorV2 accumulator(String host, int port) {
        FunctionAccumulator made = new FunctionAccumulator(this, host, port, token);
        sc.register(made);
        accumulator = made;
        return made;
    }

    /** Cancel the Spark jobs of the function only. */
    public void cancelJobs() {
        cancelJobs("the job's function cancelled it");
    }

    void cancelJobs(String why) {
        sc.cancelJobsWithTag(tag, why);
    }

    /** Pass the Dataset that the function returned to the agent. */
    public void give(Object returned) {
        frame = returned;
    }

    /** Pass the exception of Spark that the function did not catch to the agent. */
    public void fail(Throwable raised) {
        error = raised;
    }

    // ------------------------------------------------------------ for the agent

    public Object frame() {
        return frame;
    }

    public Throwable error() {
        return error;
    }

    boolean isOver() {
        return isOver;
    }

    /**
     * Accept no more calls of the process, and stop those in progress. Return how many of its threads and Spark jobs still ran after
     * *waitMs*; the caller repeats the call until it returns 0.
     */
    public int close(long waitMs) {
        long end = System.currentTimeMillis() + waitMs;
        synchronized (threads) {
            isOver = true;
        }
        sc.removeJobTag(tag);
        server.shutdown();
        boolean isPatient = true;
        while (true) {
            synchronized (threads) {
                long left = end - System.currentTimeMillis();
                if (threads.isEmpty()) {
                    break;
                }
                if (left <= 0) {
                    return threads.size();
                }
                if (!isPatient) {
                    threads.forEach(Thread::interrupt);
                }
                try {
                    threads.wait(Math.min(left, isPatient ? BY_THEMSELVES_MS : AGAIN_MS));
                } catch (InterruptedException e) {
                    // interrupted: this thread is stopping already
                }
                if (threads.isEmpty()) {
                    break;
                }
            }
            isPatient = false;
            cancelJobs(ENDED);
        }
        return stopJobs(waitMs);
    }

    /** Cancel jobs that Spark's own threads run for the process, such as those that serve it rows; return how many. */
    private int stopJobs(long waitMs) {
        if (sc.isStopped()) {
            return 0;
        }
        try {
            return Await.result(sc.cancelJobsWithTagWithFuture(tag, ENDED), Duration.create(waitMs, TimeUnit.MILLISECONDS)).size();
        } catch (Exception e) {
            return 1; // Spark's scheduler did not answer in time, or this thread was interrupted
        }
    }

    /** Wait until all updates of accumulators have arrived in the process. */
    void settle() {
        if (accumulator != null) {
            try {
                accumulator.settle();
            } catch (InterruptedException e) {
                // the function has ended
            }
        }
    }

    private boolean enter() {
        synchronized (threads) {
            if (!isOver) {
                threads.add(Thread.currentThread());
            }
            return !isOver;
        }
    }

    private void leave() {
        synchronized (threads) {
            threads.remove(Thread.currentThread());
            threads.notifyAll();
        }
    }

    private static final class Server extends JavaServer {
        private final FunctionGateway owner;
        private final Py4JPythonClientPerThread python;

        Server(FunctionGateway owner, PythonClient python, String token) {
            super(owner, 0, 0, 0, null, python, token);
            this.owner = owner;
            this.python = python;
        }

        @Override
        protected Py4JServerConnection createConnection(Gateway gateway, Socket socket) throws IOException {
            socket.setTcpNoDelay(true); // as in PromptAnswers
            Connection made = new Connection(owner, gateway, socket, python, this, authToken);
            made.startServerConnection();
            return made;
        }
    }

    private static final class Connection extends ClientServerConnection {
        private final FunctionGateway owner;

        Connection(FunctionGateway owner, Gateway gateway, Socket socket, Py4JPythonClientPerThread python, JavaServer server, String token)
                throws IOException {
            super(gateway, socket, null, python, server, 0, token);
            this.owner = owner;
            var call = new Call();
            call.init(gateway, this);
            commands.put(call.getCommandName(), call);
        }

        @Override
        public void run() {
            if (!owner.enter()) {
                shutdown();
                return;
            }
            try {
                super.run();
            } finally {
                owner.leave();
            }
        }

        /** A call that returns after the updates of its tasks have reached the accumulators. */
        private final class Call extends CallCommand {
            @Override
            protected ReturnObject invokeMethod(String methodName, String targetObjectId, List<Object> arguments) {
                ReturnObject returned = super.invokeMethod(methodName, targetObjectId, arguments);
                owner.settle();
                return returned;
            }
        }
    }
}
