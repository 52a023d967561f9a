"""The machine: threads, and memory that is kept rather than handed back."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP = 1 << 30


def keep_memory() -> None:
    """Let glibc keep freed memory. Else every large temporary is faulted in anew: a third of a large stack's time."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_MMAP_THRESHOLD, _KEEP)
            libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)


def cores() -> int:
    """Cores that this process may use: those it is bound to, or fewer if OMP_NUM_THREADS says so."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(bound(), int(asked)) if asked.isdigit() and int(asked) else bound()


def bound() -> int:
    """Cores that this process and its children are bound to."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes that this process may use: the machine's, or fewer where its container has a limit."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    said = limit.read_text().strip() if limit.exists() else ""
    return min(whole, int(said)) if said.isdigit() else whole


def in_units(size: int) -> str:
    """Bytes as people read them: 48000000 bytes (45.8 MiB)."""
    power = min((size.bit_length() - 1) // 10, 5) if size else 0
    return f"{size} bytes" + (f" ({size / 1024**power:.1f} {'KMGTP'[power - 1]}iB)" if power > 1 else "")


def brief(size: int) -> str:
    """Bytes rounded to one digit behind the point: 2.1 TiB."""
    power = max(0, min((size.bit_length() - 1) // 10, 6))
    return f"{size / 1024**power:.1f} {('', *'KMGTPE')[power]}{'iB' if power else 'bytes'}"


def identity() -> str:
    """The same for all processes of a machine that share its /tmp, and for no other machine."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}".strip()


def alive(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def share_cores(threads: int) -> None:
    """Let this process, as one of several, use so many cores from now on."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    use_threads(threads)


def use_threads(threads: int) -> None:
    torch.set_num_threads(threads)
