import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;

/** Questions and answers as files in the shared directory. */
public final class KbQueryFiles {
    private final Path shared;

    public KbQueryFiles(Path shared) { this.shared = shared; }

    /** Hands a job over. {@code payloadJson} must carry the same taskId, and resultFile as below. */
    public void submit(String taskId, String payloadJson) throws IOException {
        Path folder = shared.resolve("payloads");   // made once with "results" at set-up, not here: a lost mount must fail
        Path temporary = folder.resolve("." + taskId + "." + UUID.randomUUID() + ".tmp");
        try (FileChannel out = FileChannel.open(temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            ByteBuffer bytes = StandardCharsets.UTF_8.encode(payloadJson);
            while (bytes.hasRemaining()) out.write(bytes);
            out.force(true);
        }
        Files.move(temporary, folder.resolve(taskId + ".json"), StandardCopyOption.ATOMIC_MOVE);
    }

    /** The result's JSON, or empty when it did not come in time. It appears by rename, so it is always complete. */
    public Optional<String> await(String taskId, Duration timeout) throws IOException, InterruptedException {
        Instant end = Instant.now().plus(timeout);
        while (Instant.now().isBefore(end)) {
            try {
                return Optional.of(Files.readString(resultFile(taskId), StandardCharsets.UTF_8));
            } catch (NoSuchFileException notYet) {
                Thread.sleep(500);
            }
        }
        return Optional.empty();
    }

    public Path resultFile(String taskId) { return shared.resolve("results").resolve(taskId + ".json"); }
}
