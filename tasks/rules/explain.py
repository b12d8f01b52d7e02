"""What a code means and what holds a job back, in words for people; one source for CLI, metrics and pages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.errors import Code
from tasks.ports import Record
from tasks.rules.reply_fault import BROKEN_REPLY


@dataclass(frozen=True)
class Explanation:
    """``en``/``zh``: what it means. ``cure_en``/``cure_zh``: what to do about it."""

    en: str
    cure_en: str
    zh: str
    cure_zh: str


EXPLANATIONS: dict[str, Explanation] = {
    Code.BAD_PAYLOAD: Explanation(
        "the payload is not what the contract says",
        "mend the field that the error names and send it again; `kbw schema payload` prints the shape",
        "任务内容不符合约定",
        "按错误中指出的字段修改后重新提交；`kbw schema payload` 可查看格式",
    ),
    Code.UNKNOWN_SKILL: Explanation(
        "no pipeline of this worker serves the payload's skill",
        "send skill kb_query, or deploy a worker that has the other pipeline",
        "本服务没有这个 skill 对应的流程",
        "使用 kb_query，或部署支持该 skill 的版本",
    ),
    Code.CONFLICT: Explanation(
        "the taskId is known with other content; the first job is untouched",
        "use a new messageId for a new question",
        "任务编号已存在且内容不同，先前的任务不受影响",
        "新的问题请使用新的 messageId",
    ),
    Code.PATH_NOT_ALLOWED: Explanation(
        "resultFile must not be written there",
        "let it end in .json inside the shared directory, or add its folder to KBW_ALLOWED_ROOTS",
        "结果文件路径不在允许范围内",
        "改为共享目录内的 .json 文件，或把目录加入 KBW_ALLOWED_ROOTS",
    ),
    Code.GITEA_NOT_ALLOWED: Explanation(
        "the payload names another Gitea or a repository that is not allowed",
        "use the configured one; other spellings of it belong into KBW_ALLOWED_GITEA_URLS, repositories into "
        "KBW_ALLOWED_REPOS",
        "任务指定的 Gitea 或仓库不在允许范围内",
        "使用已配置的 Gitea 和仓库，或由管理员加入允许列表",
    ),
    Code.KB_UNREACHABLE: Explanation(
        "the Gitea server did not answer",
        "check GITEA_URL and the network (`kbw doctor`), then replay",
        "无法连接知识库服务器",
        "检查 GITEA_URL 与网络（`kbw doctor`），然后重放任务",
    ),
    Code.KB_AUTH: Explanation(
        "Gitea refused the token",
        "renew GITEA_BOT_TOKEN (it needs write:repository) and check GITEA_BOT_USERNAME",
        "知识库服务器拒绝了访问令牌",
        "更换 GITEA_BOT_TOKEN（需要 write:repository 权限）",
    ),
    Code.KB_NOT_FOUND: Explanation(
        "the repository does not exist, or the bot may not see it",
        "check TEAM_KB_REPO, GITEA_ORG and the payload's team.kbRepo; add the bot to the repository",
        "知识库仓库不存在，或机器人账号无权访问",
        "检查 TEAM_KB_REPO、GITEA_ORG 和 team.kbRepo，并给机器人账号授权",
    ),
    Code.COMMIT_GONE: Explanation(
        "the commit that this job is pinned to can no longer be had",
        "replay from prepare: `kbw replay ID --from-stage prepare`",
        "任务所依据的知识库版本已不存在",
        "从 prepare 阶段重放任务",
    ),
    Code.NO_MODEL: Explanation(
        "no model is configured",
        "set OPENCLAW_GATEWAY_URL and OPENCLAW_GATEWAY_TOKEN, or KBW_LLM_BASE_URL, KBW_LLM_API_KEY, KBW_LLM_MODEL",
        "没有配置可用的模型",
        "由管理员配置 OpenClaw 网关或兼容 OpenAI 的模型服务",
    ),
    Code.MODEL_UNREACHABLE: Explanation(
        "the model endpoint did not answer, or answered with a fault of its own",
        "check the endpoint (`kbw doctor`); an open job goes on by itself, a failed one wants a replay",
        "模型服务暂时不可用",
        "稍后重试；管理员可用 `kbw doctor` 检查模型服务",
    ),
    Code.MODEL_AUTH: Explanation(
        "the model endpoint refused the token, or its own provider refused its key",
        "renew OPENCLAW_GATEWAY_TOKEN or KBW_LLM_API_KEY; for authentication_error mend the key on the gateway",
        "模型服务拒绝了访问凭据",
        "由管理员更换模型服务的令牌或密钥",
    ),
    Code.MODEL_REFUSED: Explanation(
        "the model endpoint refused the request itself: too long, malformed for it, or out of quota",
        "the error holds the server's words; lower the limits, change the model or raise the quota, then replay",
        "模型服务拒绝了本次请求（内容过长、格式不支持或额度不足）",
        "由管理员检查模型服务的限制与额度后重放任务",
    ),
    Code.RESULT_DIR_MISSING: Explanation(
        "the folder of resultFile, or the shared directory, is not there or cannot be written",
        "mount the share, make the folder, free disk space; an open job goes on by itself, a failed one wants a replay",
        "结果目录不存在或无法写入",
        "恢复共享目录；未结束的任务会自动继续，已失败的由管理员重放",
    ),
    Code.DEADLINE: Explanation(
        "the job ran out of its deadlineSeconds",
        "its stages tell where the time went; `kbw replay ID --deadline-seconds N`, or send it with a longer limit",
        "处理超过了时限",
        "稍后重试，或在任务中给出更长的 deadlineSeconds",
    ),
    Code.CANCELLED: Explanation(
        "the job was cancelled", "`kbw replay ID` if it is wanted after all", "任务已取消", "需要时可重放"
    ),
    Code.EXHAUSTED: Explanation(
        "a stage was tried as often as allowed",
        "the error names the last cause; mend it, then `kbw replay ID`",
        "某个阶段已达到最大尝试次数",
        "查明原因后由管理员重放任务",
    ),
    Code.INTERNAL: Explanation(
        "a fault of ours",
        "the trace is in the worker's log; report it, then replay",
        "系统内部错误",
        "请联系管理员",
    ),
    **{
        code: Explanation(
            "the model's reply could not be read or broke a rule, after two re-asks",
            "look at replies/ in the job's folder; mend the model or its prompt, then replay: the model is asked anew",
            "模型多次给出不合要求的回复",
            "请稍后重试；管理员可查看任务目录中的模型原始回复",
        )
        for code in BROKEN_REPLY
    },
}


def explain(code: str, task_id: str = "ID") -> Explanation:
    """What a code means and what to do about this job. An unknown code (a newer worker's) says so."""
    unknown = Explanation(f"code {code}", "see the changelog of the newest worker", f"错误码 {code}", "请联系管理员")
    found = EXPLANATIONS.get(code, unknown)
    return replace(found, cure_en=found.cure_en.replace("kbw replay ID", f"kbw replay {task_id}"))


@dataclass(frozen=True)
class Waiting:
    """Why a job stands where it stands. ``until`` in seconds since the epoch, 0 when nobody knows."""

    reason: str
    until: float = 0.0


def why_waiting(record: Record, now: float) -> Waiting | None:
    """What holds an open job: a lease, a wait, a cap, the order of its conversation, a pause; ``None``: it is over."""
    if record.state in ("done", "failed", "cancelled"):
        return None
    if record.cancelled:
        return Waiting("cancelled; its error result is on the way")
    if record.state == "running" and record.lease_until > now:
        return Waiting(f"running on {record.worker}, attempt {record.attempt}", record.lease_until)
    if record.state == "running":
        return Waiting(
            f"its worker {record.worker} went silent; it is woken again by the reconciler", record.lease_until
        )
    if record.state == "parked" and record.parked_until > now:
        cause = f"{record.code}: {record.error}" if record.error else record.code
        return Waiting(f"waits before attempt {record.attempt + 1} ({cause})", record.parked_until)
    blocked = {
        "order": f"waits for {record.blocked_by}, which came first in its conversation",
        "cap": f"all slots of the model endpoint are taken ({record.blocked_by})",
        "breaker": f"the breaker of {record.blocked_by} is open after repeated faults",
        "paused": f"{record.blocked_by} is paused by an operator (`kbw resume`)",
    }
    if record.blocked in blocked:
        return Waiting(blocked[record.blocked], record.blocked_until)
    return Waiting(f"waits for a worker of stage {record.stage}")
