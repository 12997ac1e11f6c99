package onager.gateway;

import onager.failure.RefusedException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;

/**
 * The executor's Hadoop settings as the function of a job sees them: what is set here becomes a setting of the job's session, from which
 * Hadoop's settings of its queries are made, and nobody else's.
 */
public final class JobConfiguration extends Configuration {
    private final Configuration base;
    private final SparkSession session;

    JobConfiguration(Configuration base, SparkSession session) {
        super(base);
        this.base = base;
        this.session = session;
    }

    @Override
    public void set(String name, String value, String source) {
        super.set(name, value, source);
        if (session != null) { // null: the copy is being made
            session.sessionState().conf().setConfString(name, value);
        }
    }

    @Override
    public void unset(String name) {
        if (base.get(name) != null) {
            throw new RefusedException(name + " is a setting of the executor's, which a job cannot take away: set it to another value");
        }
        super.unset(name);
        session.sessionState().conf().unsetConf(name);
    }
}
