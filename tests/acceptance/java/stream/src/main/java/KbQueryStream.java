import java.util.*;
import java.util.function.Consumer;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.*;
import redis.clients.jedis.resps.StreamEntry;

/** Questions and answers over two Redis streams. Any number of backends may share the results as one group. */
public final class KbQueryStream {
    private static final String JOBS = "kbw:jobs", RESULTS = "kbw:results", GROUP = "backend";
    private final UnifiedJedis redis;
    private final String consumer;

    /** {@code consumer}: a name that stays the same when this backend is started again. */
    public KbQueryStream(UnifiedJedis redis, String consumer) {
        this.redis = redis;
        this.consumer = consumer;
        try {
            redis.xgroupCreate(RESULTS, GROUP, new StreamEntryID("0-0"), true);
        } catch (JedisDataException known) {
            if (!known.getMessage().startsWith("BUSYGROUP")) throw known;
        }
    }

    /** Hands a job over; no resultFile is needed. Send the same payload again as often as you like. */
    public void submit(String payloadJson) {
        redis.xadd(JOBS, Map.of("payload", payloadJson), XAddParams.xAddParams());
    }

    /** What an earlier run of this consumer was given and did not finish; call it once at start. */
    public void resume(Consumer<Map<String, String>> handler) { hand(new StreamEntryID("0-0"), handler); }

    /** Waits a few seconds for results: fields taskId, kind (result, rejected), success, errorCode, result. */
    public void poll(Consumer<Map<String, String>> handler) { hand(StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY, handler); }

    /** The handler must take repeats: an entry is acknowledged only after it returned. */
    private void hand(StreamEntryID from, Consumer<Map<String, String>> handler) {
        var read = XReadGroupParams.xReadGroupParams().count(20).block(1_500);
        var found = redis.xreadGroup(GROUP, consumer, read, Map.of(RESULTS, from));
        if (found == null) return;
        for (var stream : found) {
            for (StreamEntry entry : stream.getValue()) {
                handler.accept(entry.getFields());
                redis.xack(RESULTS, GROUP, entry.getID());
            }
        }
    }
}
