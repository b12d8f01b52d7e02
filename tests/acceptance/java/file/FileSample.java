import java.nio.file.*;
import java.time.Duration;

/** {@code java FileSample <shared> <taskId> <payload.json>}: prints the result; exit code 3 when none came in time. */
public final class FileSample {
    public static void main(String[] args) throws Exception {
        KbQueryFiles files = new KbQueryFiles(Path.of(args[0]));
        files.submit(args[1], Files.readString(Path.of(args[2])));
        var result = files.await(args[1], Duration.ofSeconds(90));
        result.ifPresentOrElse(System.out::print, () -> System.exit(3));
    }
}
