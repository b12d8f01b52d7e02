import java.util.List;
import java.util.Map;

public record KbQueryResult(
        boolean success, String taskId, String answer, List<Source> sources, String createdQaPath,
        List<String> processedSources, List<Map<String, Object>> createdPages,
        List<Map<String, Object>> updatedPages, List<String> archivedFiles, List<String> skippedSources,
        List<String> errors, String commitId, boolean knowledgeSufficient, List<Attachment> usedAttachments,
        Map<String, Object> qaEvaluation, String errorCode, boolean retryable, Map<String, Long> timings,
        List<Map<String, Object>> degraded) {

    public record Source(
            String path, String title, String type, String snippet, List<Object> sourceIds,
            List<Trace> sourceTraces) {}

    public record Trace(
            Object sourceId, String sourceType, String platform, String title, String fileName,
            String archivedPath, String url, String commitHash, String branch, String sha256, String status,
            String ingestedAt) {}

    public record Attachment(
            Object attachmentId, String fileName, String role) {}
}
