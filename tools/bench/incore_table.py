"""Results of incore.py: kept in a JSON file over several calls, shown as one table in Markdown. Plain data only."""

from __future__ import annotations

import json
from pathlib import Path

OURS = "ours"
PEERS = {  # name -> how the table calls it
    "eager": "PyTorch",
    "channels_last": "PyTorch channels-last",
    "compile": "PyTorch compiled",
    "compile_graphs": "PyTorch compiled, reduce-overhead",
}


def merge(old: list[dict], new: list[dict]) -> list[dict]:
    """All results; a new one replaces the old one of the same net, batch and runner."""
    key = lambda r: (r["net"], r["batch"], r["who"])  # noqa: E731
    replaced = {key(r) for r in new}
    return [r for r in old if key(r) not in replaced] + new


def load(path: Path) -> list[dict]:
    return json.loads(path.read_text())["results"] if path.exists() else []


def save(path: Path, results: list[dict]) -> None:
    """Written whole or not at all: a call may be cut off at its time limit."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"results": results}, indent=1) + "\n")
    part.replace(path)


def with_ratios(results: list[dict]) -> list[dict]:
    """Each result of ours gets `ratio`: its time divided by each peer's, where both ran."""
    found = {(r["net"], r["batch"], r["who"]): r for r in results}
    for r in results:
        if r["who"] == OURS and "ms" in r:
            peers = {p: found.get((r["net"], r["batch"], p), {}) for p in PEERS}
            r["ratio"] = {p: round(r["ms"] / peer["ms"], 4) for p, peer in peers.items() if "ms" in peer}
    return results


def markdown(results: list[dict]) -> str:
    """A row per net and batch. A ratio below 1 means that ours is faster."""
    found = {(r["net"], r["batch"], r["who"]): r for r in results}
    peers = [p for p in PEERS if any(r["who"] == p for r in results)]
    head = ["net", "batch", "ours ms", "images/s", "host ms", "GiB"]
    for p in peers:
        head += [f"{PEERS[p]} ms", "ours / it", "GiB"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for net, batch in dict.fromkeys((r["net"], r["batch"]) for r in results):
        ours = found.get((net, batch, OURS))
        line = [net, str(batch), *_time(ours)]
        line += [f"{1e3 * batch / ours['ms']:.0f}", f"{ours['issue_ms']:.1f}"] if _ran(ours) else ["-", "-"]
        line.append(_memory(ours))
        for p in peers:
            peer = found.get((net, batch, p))
            ratio = f"{ours['ms'] / peer['ms']:.2f}" if _ran(ours) and _ran(peer) else "-"
            line += [*_time(peer), ratio, _memory(peer)]
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ran(r: dict | None) -> bool:
    return r is not None and "ms" in r


def _time(r: dict | None) -> list[str]:
    if r is None:
        return ["-"]
    return [f"{r['ms']:.1f}"] if _ran(r) else [short(r["error"])]


def _memory(r: dict | None) -> str:
    return f"{r['memory'] / 2**30:.1f}" if _ran(r) and r["memory"] is not None else "-"


def short(error: str) -> str:
    """What a cell says about a failure."""
    if "out of memory" in error.lower() or "OutOfMemory" in error or "OutOfDeviceMemory" in error:
        return "out of memory"
    return error.replace("|", "/")[:60]
