package onager.gateway;

import java.net.SocketException;
import py4j.DefaultGatewayServerListener;
import py4j.Py4JServerConnection;

/**
 * Sets TCP_NODELAY on the gateway's connections: otherwise the part of an answer beyond the 8 KiB buffer waits until Python's side
 * acknowledges the first part, which takes 40 ms.
 */
public final class PromptAnswers extends DefaultGatewayServerListener {
    @Override
    public void connectionStarted(Py4JServerConnection connection) {
        try {
            connection.getSocket().setTcpNoDelay(true);
        } catch (SocketException e) {
            // it is already closed
        }
    }
}
