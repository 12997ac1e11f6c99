package onager.gateway;

import onager.failure.RefusedException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;

/**
 * The executor's Hadoop settings as the function of a job sees them. A setting made here becomes a setting of the job's session, which
 * only its own queries use.
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
        if (session != null) { // null: the constructor is copying
            session.sessionState().conf().setConfString(name, value);
        }
    }

    @Override
    public void unset(String name) {
        if (base.get(name) != null) {
            throw new RefusedException(name + " is a setting of the executor, which a job cannot remove: set it to another value");
        }
        super.unset(name);
        session.sessionState().conf().unsetConf(name);
    }
}
