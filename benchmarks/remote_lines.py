"""Lines of code of one DLRM whose tables lie on a parameter server, over gRPC, over PyTorch RPC, and as a run.

    python benchmarks/remote_lines.py             # counts them
    python benchmarks/remote_lines.py --run       # and trains each: two minutes, needs `pip install 'grpcio>=1.70'`

Table of docs/remote.md. They are whole programs beside this file, and train the same model on the same data:
a server with three tables under row-wise Adagrad, two synchronous trainers. A line counts where it has code that
whoever writes the program types: not blank, no comment, no docstring, laid out by ruff at 120 columns. Parts are what
stands under a comment `# ---`.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {"gRPC": "remote_dlrm_grpc", "PyTorch RPC": "remote_dlrm_rpc", "RecSmith": "remote_dlrm"}
PARTS = ("imports", "model and data", "server", "transport", "training")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
PART = re.compile(r"# --- (.*?) -+$")
LOSS = re.compile(r"step +(\d+).*?loss +([\d.]+)")


def counted(text: str) -> dict[str, int]:
    """Lines of code of each part of a program."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    found: dict[str, int] = dict.fromkeys(PARTS, 0)
    part = PARTS[0]
    for number, line in enumerate(text.splitlines(), 1):
        match = PART.match(line)
        part = match[1] if match else part
        found[part] += number in code
    return found


def table() -> None:
    """Print the lines of each program and part."""
    lines = {title: counted((HERE / f"{name}.py").read_text("utf-8")) for title, name in PROGRAMS.items()}
    whole = sum(lines["gRPC"].values())
    print(f"| program | {' | '.join(PARTS)} | lines | beside gRPC |")
    print("|" + "---|" * (len(PARTS) + 3))
    for title, parts in lines.items():
        total = sum(parts.values())
        print(f"| {title} | {' | '.join(map(str, parts.values()))} | {total} | {total / whole:.2f} |")


def trained(name: str) -> dict[int, float]:
    """Losses of a program's steps, as it tells them."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(HERE / f"{name}.py")],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        sys.exit(f"{name}.py failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return {int(step): float(loss) for step, loss in LOSS.findall(done.stdout)}


def main() -> int:
    """Print the table, and train where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="train all, and compare their losses")
    arguments = parser.parse_args()
    table()
    if arguments.run and find_spec("grpc") is None:
        print("needs gRPC: pip install 'grpcio>=1.70'", file=sys.stderr)
        return 1
    if arguments.run:
        losses = {title: trained(name) for title, name in PROGRAMS.items()}
        for title, found in losses.items():
            print(f"{title}: {len(found)} losses reported, the last of step {max(found)} is {found[max(found)]:.7f}")
        assert losses["gRPC"] == losses["PyTorch RPC"], "the programs by hand must train the same to the bit"
    return 0


if __name__ == "__main__":
    sys.exit(main())
