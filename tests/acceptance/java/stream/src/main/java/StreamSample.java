import java.net.URI;
import java.nio.file.*;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicBoolean;
import redis.clients.jedis.JedisPooled;

/** {@code REDIS_URL=… java StreamSample <taskId> <payload.json>}: prints the result; exit code 3 when none came. */
public final class StreamSample {
    public static void main(String[] args) throws Exception {
        try (JedisPooled redis = new JedisPooled(URI.create(System.getenv("REDIS_URL")))) {
            KbQueryStream stream = new KbQueryStream(redis, "sample");
            stream.submit(Files.readString(Path.of(args[1])));
            AtomicBoolean done = new AtomicBoolean();
            Instant end = Instant.now().plusSeconds(90);
            while (!done.get() && Instant.now().isBefore(end)) {
                stream.poll(entry -> {
                    if (entry.get("taskId").equals(args[0]) && entry.get("kind").equals("result")) {
                        if (done.compareAndSet(false, true)) System.out.print(entry.get("result"));
                    }
                });
            }
            if (!done.get()) System.exit(3);
        }
    }
}
