"""What stands behind a foreign error, in Chinese: for sentences that a team member reads; operators get the English."""

from __future__ import annotations

import errno

_OS = {
    errno.ENOENT: "文件或目录不存在",
    errno.ENOTDIR: "路径中有一段不是目录",
    errno.EISDIR: "是目录而不是文件",
    errno.EACCES: "没有权限",
    errno.EPERM: "没有权限",
    errno.ENOSPC: "磁盘空间不足",
    errno.EDQUOT: "磁盘配额已用完",
    errno.EROFS: "文件系统是只读的",
    errno.EIO: "磁盘读写出错",
    errno.ESTALE: "共享目录的挂载已失效",
    errno.EEXIST: "同名文件已存在",
    errno.ELOOP: "符号链接过多",
    errno.ENAMETOOLONG: "文件名过长",
    errno.EMFILE: "打开的文件过多",
    errno.ENFILE: "打开的文件过多",
    errno.ETIMEDOUT: "响应超时",
}


def os_cause(error: OSError) -> str:
    """Why the system refused; with its number where we have no words for it."""
    return _OS.get(error.errno or 0) or f"系统错误 {error.errno or type(error).__name__}"
