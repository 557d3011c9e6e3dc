"""scripts/clang_kernels.sh notices what a kernel should not have."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/clang_kernels.sh"


def said(line):
    """Exit status and output over the kernels' headers and one kernel with this line in it."""
    with tempfile.TemporaryDirectory() as place:
        kernels = Path(place) / "gpu/kernels"
        kernels.mkdir(parents=True)
        for header in (ROOT / "gpu/kernels").glob("*.h"):
            shutil.copy(header, kernels)
        (kernels / "planted.cu").write_text(
            '#include "layout.h"\n'
            "KERNEL(planted, MicroEmptyParams, 32) {\n"
            f"  u32 *to = at<u32>(p.runs);\n  {line}\n}}\n"
        )
        done = subprocess.run(
            [SCRIPT, kernels], capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr


class ClangKernels(unittest.TestCase):
    def test_a_good_kernel_passes(self):
        self.assertEqual(said("*to = threadIdx.x;"), (0, "clang: 1 kernels passed, 0 failed\n"))

    def test_each_defect_is_named(self):
        for line, word in (
            ("*to = u32(__ffs(*to));", "-Wsign-conversion"),
            ("u32 unused = *to;", "-Wunused-variable"),
            ('asm volatile("mov.u32 %0, %laneid;" : "=r"(*to));', "invalid % escape"),
            ("*to = no_such_function(1);", "undeclared identifier"),
            ("if (*to) { *to = sizeof(to) / sizeof(*to); }", "bugprone-sizeof-expression"),
        ):
            status, output = said(line)
            self.assertEqual(status, 1, line)
            self.assertIn(word, output)


if __name__ == "__main__":
    unittest.main()
