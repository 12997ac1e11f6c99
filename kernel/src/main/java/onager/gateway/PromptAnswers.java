package onager.gateway;

import java.net.SocketException;
import py4j.DefaultGatewayServerListener;
import py4j.Py4JServerConnection;

/**
 * Has the gateway send all of an answer at once: what is beyond its buffer of 8 KiB would otherwise wait until Python's side has
 * acknowledged the beginning, which it puts off for 40 ms.
 */
public final class PromptAnswers extends DefaultGatewayServerListener {
    @Override
    public void connectionStarted(Py4JServerConnection connection) {
        try {
            connection.getSocket().setTcpNoDelay(true);
        } catch (SocketException e) {
            // it is closed already
        }
    }
}
